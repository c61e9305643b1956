"""Migrations: a job stops at its node when another one is ready, and loses nothing whatever fails on the way."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler_service.core.errors import FailedPrecondition, NotFound
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    DrainRequested,
    FenceRequested,
    GangPlace,
    Joined,
    MigrateRequested,
    Order,
    RequeueRequested,
    RunExited,
    Running,
    RunReady,
    RunStarted,
    Step,
    Stopped,
    SuspendRequested,
    Warming,
)
from scheduler_service.core.model import (
    EventKind,
    JobState,
    OperationPhase,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
    TaskGroup,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector
from tests.core.driver import Driver, spec

SMALL = Vector(8_000, 16_384, 2)
TASK = Vector(1_000, 1_024, 1)


def cluster(*names: str) -> Driver:
    d = Driver()
    for name in names or ("n1", "n2"):
        d.join(name, SMALL)
    return d


def running(d: Driver) -> int:
    job = d.submit()
    d.start(job)
    return job


def migrate(d: Driver, job: int, *nodes: str, devices: tuple[tuple[int, ...], ...] = ()) -> Step:
    taken = d.step(MigrateRequested(job, nodes or ("n2",), devices))
    assert taken.replies == (Accepted(job),), taken.replies
    return taken


def target(d: Driver, job: int, task: int = 0) -> Run:
    """The run that the job is to go on in."""
    number = d.state.operations.rows[d.state.operation_of[job]].target
    assert number is not None
    return d.state.runs.rows[number._replace(task=task)]


def of(d: Driver, run: Run, kind: Any, **facts: Any) -> Any:
    """The next report of the run's node about it."""
    node = d.state.nodes.rows[run.node]
    return kind(node.name, node.boot_id, d._next(node), run.key, **facts)


def warm(d: Driver, job: int) -> Step:
    tasks = range(len(d.job(job).launch_spec.tasks()))
    return [d.step(of(d, target(d, job, task), RunReady, address="a", port=7)) for task in tasks][-1]


def phase(d: Driver, job: int) -> OperationPhase | None:
    number = d.state.operation_of.get(job)
    return None if number is None else d.state.operations.rows[number].phase


def sole(orders: tuple[Order, ...]) -> Order:
    (order,) = orders
    return order


def test_a_job_stops_when_its_destination_is_ready_and_goes_on_there() -> None:
    d = cluster()
    job = running(d)
    order = sole(migrate(d, job).orders)
    assert isinstance(order.desired, Warming)
    assert (order.key, order.node, d.free("n2").devices) == (RunKey(job, 2), 2, 1)
    assert (d.job(job).state, phase(d, job)) == (JobState.RUNNING, OperationPhase.WARMING)
    order = sole(warm(d, job).orders)
    assert isinstance(order.desired, Stopped)
    assert (order.key, order.desired.reason) == (RunKey(job, 1), StopReason.MIGRATED)
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.MIGRATED)
    order = sole(d.exit(job, yielded=True, told=True).orders)
    assert isinstance(order.desired, Running)
    assert (order.key, order.node) == (RunKey(job, 2), 2)
    assert (d.job(job).state, d.job(job).run, phase(d, job)) == (JobState.STARTING, 2, OperationPhase.STARTING)
    assert (d.free("n1").devices, d.free("n2").devices) == (2, 1)
    taken = d.step(d.started(job), after=3)
    assert (d.job(job).state, phase(d, job)) == (JobState.RUNNING, None)
    story = [line for line in taken.log if line.kind is EventKind.MIGRATED]
    assert [line.text for line in story] == ["ready in 0.00 s while it ran; then saved in 0.00 s, and started in 3.00 s"]
    d.exit(job)
    assert d.job(job).state is JobState.SUCCEEDED


def test_the_call_may_be_repeated() -> None:
    d = cluster()
    job = running(d)
    migrate(d, job)
    before = d.state.snapshot()
    for _ in range(2):
        assert not migrate(d, job).orders
    assert d.state.snapshot() == before
    warm(d, job)
    d.exit(job, yielded=True)
    d.start(job)
    assert not migrate(d, job).orders, "it is there"


def test_the_next_launch_has_a_number_that_no_launch_had() -> None:
    """The node knows that number, and takes it for over."""
    d = cluster()
    job = running(d)
    migrate(d, job)
    d.step(RequeueRequested(job))
    d.exit(job, yielded=True)
    assert d.job(job).run == 3
    assert d.job(job).state is JobState.STARTING


def gone(d: Driver, job: int) -> None:
    """The destination is not kept any more, and its node was told."""
    assert phase(d, job) is None
    assert d.free("n2").devices == 2
    assert not [run for run in d.state.runs.rows.values() if run.awaits]


def _its_process_ends(d: Driver, job: int) -> None:
    d.step(of(d, target(d, job), RunExited, exit_signal=9))


def _it_cannot_be_made_ready(d: Driver, job: int) -> None:
    d.step(of(d, target(d, job), RunExited, launch_error="no folder"))


def _it_takes_too_long(d: Driver, job: int) -> None:
    d.step(after=301)


def _its_node_reboots(d: Driver, job: int) -> None:
    d.join("n2", SMALL, boot="b", known=())


def _its_node_forgets_it(d: Driver, job: int) -> None:
    if target(d, job).ready_at:
        d.join("n2", SMALL, known=())
    else:
        _its_node_reboots(d, job)


def _its_node_falls_silent(d: Driver, job: int) -> None:
    d.silence("n2")


def _its_node_is_drained(d: Driver, job: int) -> None:
    d.step(DrainRequested("n2", "", "op"))


FAULTS: list[Callable[[Driver, int], None]] = [
    _its_process_ends,
    _it_cannot_be_made_ready,
    _its_node_reboots,
    _its_node_forgets_it,
    _its_node_falls_silent,
    _its_node_is_drained,
]


@pytest.mark.parametrize("fault", [*FAULTS, _it_takes_too_long])
def test_before_it_stops_the_job_runs_on_whatever_becomes_of_the_destination(fault: Callable[[Driver, int], None]) -> None:
    d = cluster()
    job = running(d)
    migrate(d, job)
    fault(d, job)
    gone(d, job)
    assert (d.job(job).state, d.job(job).run) == (JobState.RUNNING, 1)
    d.exit(job)
    assert d.job(job).state is JobState.SUCCEEDED


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_that_saves_queues_first_if_the_destination_is_lost(fault: Callable[[Driver, int], None]) -> None:
    d = cluster()
    job = running(d)
    migrate(d, job)
    warm(d, job)
    fault(d, job)
    gone(d, job)
    assert d.job(job).state is JobState.STOPPING
    d.exit(job, yielded=True)
    assert (d.job(job).state, d.job(job).run, d.job(job).requeued) == (JobState.STARTING, 3, True)
    assert d.where(job).name == "n1"


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [({"launch_error": "no such file"}, Reason.MIGRATED), ({"not_fetched": "disk full"}, Reason.CHECKPOINT_AWAY)],
)
def test_a_job_that_does_not_begin_there_queues_first_and_avoids_the_node(outcome: dict[str, str], reason: Reason) -> None:
    d = cluster()
    job = running(d)
    migrate(d, job)
    warm(d, job)
    d.exit(job, yielded=True)
    taken = d.exit(job, **outcome)
    queued = [line for line in taken.log if line.kind is EventKind.REQUEUED]
    assert [line.reason for line in queued] == [reason]
    d.step(after=60)
    assert (d.job(job).state, d.job(job).run) == (JobState.STARTING, 3)
    assert d.where(job).name == "n1", "the other node is tried last"


def test_a_destination_that_dies_while_it_starts_sends_the_job_back_to_its_queue() -> None:
    d = cluster()
    job = running(d)
    migrate(d, job)
    warm(d, job)
    d.exit(job, yielded=True)
    d.silence("n2")
    assert d.job(job).state is JobState.UNREACHABLE
    d.step(FenceRequested("n2", "op"))
    assert (d.job(job).run, d.where(job).name, phase(d, job)) == (3, "n1", None)


def test_a_source_that_falls_silent_gives_the_destination_free() -> None:
    d = cluster()
    job = running(d)
    migrate(d, job)
    d.silence("n1")
    gone(d, job)
    d.join("n1", SMALL)
    assert d.job(job).state is JobState.RUNNING


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize(
    ("request_", "outcome", "state"),
    [
        (CancelRequested, {"yielded": True}, JobState.CANCELLED),
        (SuspendRequested, {"yielded": True}, JobState.SUSPENDED),
        (RequeueRequested, {"yielded": True}, JobState.STARTING),
        (None, {}, JobState.SUCCEEDED),
        (None, {"exit_code": 3}, JobState.FAILED),
    ],
)
def test_whatever_else_ends_the_launch_ends_the_migration(
    ready: bool, request_: Any, outcome: dict[str, Any], state: JobState
) -> None:
    d = cluster()
    job = running(d)
    migrate(d, job)
    if ready and state is JobState.FAILED:
        return  # a job that fails after it was told to stop was stopped
    if ready:
        warm(d, job)
    log = list(d.step(request_(job)).log) if request_ is not None else []
    taken = d.exit(job, **outcome, **({"done": True} if ready and state is JobState.SUCCEEDED else {}))
    if request_ is RequeueRequested and ready:
        assert d.job(job).run == 2, "it was on its way anyway"
        return
    assert d.job(job).state is state, taken.log
    gone(d, job)
    assert len([line for line in (*log, *taken.log) if line.kind is EventKind.MIGRATION_FAILED]) == 1, "its story says so"


def test_a_suspension_says_in_the_story_that_the_migration_is_over() -> None:
    for reached in (OperationPhase.WARMING, OperationPhase.SAVING, OperationPhase.STARTING):
        d = cluster()
        job = running(d)
        migrate(d, job)
        if reached is not OperationPhase.WARMING:
            warm(d, job)
        if reached is OperationPhase.STARTING:
            d.exit(job, yielded=True)
        assert phase(d, job) is reached
        log = d.step(SuspendRequested(job)).log
        assert [(line.kind, line.text) for line in log] == [
            (EventKind.SUSPEND_REQUESTED, ""),
            (EventKind.MIGRATION_FAILED, "the job is stopped: suspended"),
        ], reached


def test_a_new_leader_goes_on_in_each_phase() -> None:
    """What it has are the rows."""
    d = cluster()
    job = running(d)
    steps: list[Callable[[], Step]] = [
        lambda: migrate(d, job),
        lambda: warm(d, job),
        lambda: d.exit(job, yielded=True),
        lambda: d.step(d.started(job)),
    ]
    for act in steps:
        act()
        d.state = d.state.rebuild()
        for name in ("n1", "n2"):
            d.join(name, SMALL)
    assert (d.job(job).state, d.where(job).name) == (JobState.RUNNING, "n2")


def gang_job(d: Driver) -> int:
    two = with_changes(spec(), gang=(TaskGroup(2, TASK),), demand=Vector(2_000, 2_048, 2))
    job = d.submit(two)
    for task in range(2):
        d.step(d.ready(job, task))
    for task in range(2):
        d.step(d.started(job, task))
    return job


def test_all_tasks_of_a_gang_move_together_and_meet_where_rank_0_is_then() -> None:
    d = cluster("n1", "n2", "n3")
    job = gang_job(d)
    assert d.job(job).task_nodes == (1, 1)
    orders = migrate(d, job, "n2", "n3").orders
    assert [order.desired.gang for order in orders] == [GangPlace(2, 0, 1, rank, (2, 3)) for rank in range(2)]
    again = d.reply(d.seen("n3", SMALL))
    assert isinstance(again, Joined)
    assert again.orders == orders[1:], "an agent that connects is told the same"
    d.step(of(d, target(d, job, 0), RunReady, address="b", port=9))
    assert phase(d, job) is OperationPhase.WARMING, "rank 1 is not ready"
    d.step(of(d, target(d, job, 1), RunReady, address="c", port=0))
    d.step(d.exited(job, 0, yielded=True))
    assert d.job(job).run == 1
    taken = d.step(d.exited(job, 1, yielded=True))
    assert [order.node for order in taken.orders] == [2, 3]
    assert (d.job(job).rendezvous, d.job(job).task_nodes) == ("b:9", (2, 3))
    for task in range(2):
        d.step(d.started(job, task))
    assert (d.job(job).state, phase(d, job)) == (JobState.RUNNING, None)


def refused(d: Driver, job: int, *nodes: str, devices: tuple[tuple[int, ...], ...] = ()) -> str:
    answer = d.reply(MigrateRequested(job, nodes, devices))
    assert isinstance(answer, FailedPrecondition | NotFound), answer
    return f"{answer.reason}: {answer}"


def test_what_cannot_be_is_refused_in_words() -> None:
    d = cluster("n1", "n2", "n3", "n4")
    job = running(d)
    assert refused(d, job, "n9").startswith("NO_SUCH_NODE")
    assert refused(d, 99, "n2").startswith("NO_LIVE_JOB")
    assert "name one node for all" in refused(d, job, "n2", "n3")
    d.silence("n3")
    assert "node n3 is silent" in refused(d, job, "n3")
    d.step(DrainRequested("n4", "", "op"))
    assert "node n4 is being drained" in refused(d, job, "n4")
    other = d.submit(devices=2)
    assert d.where(other).name == "n2"
    assert refused(d, job, "n2").startswith("NO_ROOM_THERE: job 1 needs 1 device, and node n2 has 0 idle devices")
    assert "job 1 does not fit on n2" in refused(d, job, "n2", devices=((0,),))
    d.step(of(d, d.run(job), RunExited))
    job = d.submit()
    assert "run 3.1 is STARTING: only a running one can be migrated" in refused(d, job, "n1", devices=((1,),))
    waiting = d.submit(devices=2)
    assert refused(d, waiting, "n1").startswith("WRONG_STATE: job 4 is QUEUED and cannot be migrated")


def test_a_job_may_move_to_other_devices_of_its_node() -> None:
    d = cluster()
    job = running(d)
    assert d.run(job).devices == (0,)
    migrate(d, job, "n1", devices=((1,),))
    warm(d, job)
    d.exit(job, yielded=True)
    d.start(job)
    assert (d.where(job).name, d.run(job).devices) == ("n1", (1,))


def test_the_node_of_the_last_checkpoint_is_known_where_it_can_be_fetched() -> None:
    d = cluster()
    job = running(d)
    assert d.job(job).saved_on == 0
    d.step(replace(d.seen("n1", SMALL), checkpoints_at="n1:7"))
    d.step(RequeueRequested(job))
    d.exit(job, yielded=True)
    assert d.job(job).saved_on == 0
    d.start(job)
    assert d.job(job).saved_on == 1


def test_the_runs_of_a_destination_are_none_of_the_launch() -> None:
    d = cluster()
    job = running(d)
    migrate(d, job)
    run = target(d, job)
    assert (run.phase, run.awaits) == (RunPhase.WARMING, True)
    assert [one.key for one in d.state.runs_of(job)] == [RunKey(job, 1)]
    answer = d.step(of(d, run, RunStarted))
    assert target(d, job).started_us is None, answer


@pytest.mark.parametrize(("ready", "exit_code"), [(False, 0), (False, 1), (True, 0)])
def test_a_job_that_ends_while_it_migrates_leaves_no_run_that_was_lost(ready: bool, exit_code: int) -> None:
    """What was made ready for it elsewhere never began, and says why."""
    d = cluster()
    job = running(d)
    migrate(d, job)
    unused = target(d, job)
    if ready:
        warm(d, job)
    d.exit(job, exit_code=exit_code)
    assert d.ended[job].state is (JobState.FAILED if exit_code else JobState.SUCCEEDED)
    told = d.runs[unused.key]
    assert (told.phase, told.started_us, told.lost, told.stop_reason) == (RunPhase.ENDED, None, False, StopReason.MIGRATED)
    assert [phase.text for phase in told.phases] == ["the job ended before it could go on there"]
