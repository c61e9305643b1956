"""Parks: a run leaves its devices, stays in the memory of its node, and goes on there when its devices are idle."""

from typing import Any

import pytest

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.lifecycle.desired import desired_order
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    DrainRequested,
    FenceRequested,
    KnownRun,
    NodeDeleteRequested,
    NodeSeen,
    Parked,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    RunExited,
    Running,
    RunParked,
    RunParkRefused,
    RunResumed,
    Step,
    Stopped,
    SuspendRequested,
    UndrainRequested,
    UpdateRequested,
)
from scheduler_service.core.model import EventKind, JobSpec, JobState, OperationPhase, Reason, RunPhase, StopReason
from scheduler_service.core.model.configurations import TaskGroup
from scheduler_service.core.model.settings import DEFAULTS
from scheduler_service.core.model.values import SECOND, Vector
from tests.core.driver import Driver, inventory, kinds, orders_to_start, stopped

GIB = 1 << 30
ROOMY = Vector(64_000, 2 * 1024 * 1024, 8)
"""A node whose memory takes what eight devices have."""


def desk(capacity: Vector = ROOMY, nodes: int = 1) -> Driver:
    d = Driver()
    for number in range(1, nodes + 1):
        d.join(f"n{number}", capacity)
    return d


def running(d: Driver, devices: int = 8, **wants: int) -> int:
    job = d.submit(devices=devices, **wants)
    d.start(job)
    return job


def park(d: Driver, job: int, only: bool = False) -> Step:
    return d.step(SuspendRequested(job, park=True, park_only=only))


def told(d: Driver, kind: Any, job: int, task: int = 0, **facts: Any) -> Any:
    """The next report of the task's node."""
    node, key = d.where(job, task), d.run(job, task).key
    return kind(node.name, node.boot_id, d._next(node), key, **facts)


def is_parked(d: Driver, job: int, task: int = 0, gib: int = 1) -> Step:
    facts = {"rung": "cooperative", "moved_bytes": gib * GIB, "residue_bytes": 300 << 20}
    return d.step(told(d, RunParked, job, task, **facts), after=2)


def parked(d: Driver, devices: int = 8, **wants: int) -> int:
    job = running(d, devices, **wants)
    park(d, job)
    is_parked(d, job)
    assert d.job(job).state is JobState.SUSPENDED
    return job


def story(taken: Step, job: int) -> list[tuple[EventKind, str]]:
    return [(event.kind, event.text) for event in taken.log if event.job_id == job]


def phase(d: Driver, job: int) -> OperationPhase | None:
    number = d.state.operation_of.get(job)
    return None if number is None else d.state.operations.rows[number].phase


# ---- the way there and back ----------------------------------------------------------------------------------------------


def test_a_parked_run_leaves_its_devices_to_others_and_is_charged_for_what_it_had_on_them() -> None:
    d = desk()
    job, waiting = running(d), d.submit(devices=8)
    (order,) = park(d, job).orders
    assert isinstance(order.desired, Parked)
    assert (order.desired.time_limit_us, order.generation) == (DEFAULTS.park_limit_us, 2)
    assert (d.job(job).state, d.job(job).reason, d.run(job).phase) == (JobState.STOPPING, Reason.PARKED, RunPhase.PARKING)
    assert d.free().devices == 0, "it holds its devices until it is parked"
    taken = is_parked(d, job, gib=5)
    assert story(taken, job) == [(EventKind.PARKED, "parked in 2.00 s: cooperative, 5120 MiB, residue 300 MiB")]
    assert (d.job(job).state, d.job(job).reason, d.run(job).phase) == (JobState.SUSPENDED, Reason.PARKED, RunPhase.PARKED)
    assert d.job(waiting).state is JobState.STARTING, "others have its devices in the same step"
    assert (d.run(job).devices, d.run(job).placed_on) == ((), tuple(range(8)))
    assert d.free() == Vector(64_000 - 2_000, ROOMY.memory_mib - 2 * 1024 - 5 * 1024, 0)
    assert d.run(job).parking.residue_mib == 300  # type: ignore[union-attr]


def test_a_parked_run_resumes_on_its_own_devices_before_jobs_that_wait_get_these() -> None:
    d = desk()
    job = parked(d)
    other, later = running(d), d.submit(devices=8)
    assert d.step(ResumeRequested(job)).orders == ()
    assert (d.job(job).state, d.job(job).reason, phase(d, job)) == (JobState.SUSPENDED, Reason.RESUMED, OperationPhase.WAITING)
    (order,) = d.exit(other).orders
    assert (order.key, type(order.desired), order.generation) == (d.run(job).key, Running, 3)
    assert (d.job(job).state, d.job(later).state) == (JobState.STARTING, JobState.QUEUED)
    taken = d.step(told(d, RunResumed, job, rung="cooperative", phases=(("copy", 250_000),)), after=1)
    assert story(taken, job) == [(EventKind.UNPARKED, "resumed in place in 1.00 s: copy 0.250 s")]
    assert (d.job(job).state, d.run(job).devices, d.run(job).parked_mib) == (JobState.RUNNING, tuple(range(8)), 0)
    assert d.state.operations.rows == {}
    assert [(one.phase, one.took_us // SECOND) for one in d.run(job).phases] == [
        (OperationPhase.PARKING, 2),
        (OperationPhase.PARKED, 0),
        (OperationPhase.WAITING, 0),
        (OperationPhase.RESUMING, 1),
    ]
    assert d.step(ResumeRequested(job)).replies == (Accepted(job),), "the call may be repeated"
    d.exit(job)
    assert (d.job(job).state, d.job(later).state) == (JobState.SUCCEEDED, JobState.STARTING)


def test_a_job_that_was_parked_runs_as_long_as_it_executes() -> None:
    d = desk()
    spec = JobSpec(("true",), Vector(1000, 1024, 8), time_limit_us=100 * SECOND)
    job = d.submit(spec)
    d.start(job)
    d.step(SuspendRequested(job, park=True), after=10)
    is_parked(d, job)
    assert d.job(job).limit_us is None
    d.step(UpdateRequested(job, time_limit_us=90 * SECOND), after=500)
    assert d.job(job).limit_us is None
    d.step(ResumeRequested(job))
    assert d.job(job).limit_us == d.now + 78 * SECOND, "it ran for 12 s"
    d.step(told(d, RunResumed, job), after=3)
    d.step(UpdateRequested(job, time_limit_us=80 * SECOND))
    assert d.job(job).limit_us == d.now + 65 * SECOND
    d.step(after=65)
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.TIME_LIMIT)
    d.exit(job, yielded=True)
    assert (d.job(job).state, d.job(job).ran_us) == (JobState.TIMED_OUT, 80 * SECOND)


def test_a_resume_takes_a_park_back_that_is_not_over() -> None:
    d = desk()
    job = running(d)
    park(d, job)
    late = told(d, RunParked, job, rung="driver", moved_bytes=GIB)
    (order,) = d.step(ResumeRequested(job)).orders
    assert (type(order.desired), order.generation) == (Running, 3)
    assert (d.job(job).state, d.job(job).suspend_requested, d.state.operations.rows) == (JobState.RUNNING, False, {})
    d.step(late)
    d.step(told(d, RunResumed, job))
    assert (d.job(job).state, d.run(job).phase, d.free().devices) == (JobState.RUNNING, RunPhase.RUNNING, 0)


def test_a_job_that_waits_to_resume_may_be_suspended_again() -> None:
    d = desk()
    job = parked(d)
    running(d)
    d.step(ResumeRequested(job))
    assert kinds(d.step(SuspendRequested(job)), job) == [EventKind.SUSPEND_REQUESTED]
    assert (phase(d, job), d.job(job).suspend_requested, d.job(job).reason) == (OperationPhase.PARKED, True, Reason.PARKED)
    assert d.step(SuspendRequested(job, park_only=True)).log == ()


# ---- what cannot be parked -----------------------------------------------------------------------------------------------


def test_a_refused_park_leaves_the_run_where_it_is_if_that_is_all_its_user_wants() -> None:
    d = desk()
    job = running(d)
    park(d, job, only=True)
    taken = d.step(told(d, RunParkRefused, job, why="a step takes longer than 60 s"), after=3)
    text = "not parked: a step takes longer than 60 s; it goes on"
    assert story(taken, job) == [(EventKind.PARK_REFUSED, text)]
    assert (d.job(job).state, d.job(job).suspend_requested, d.run(job).phase) == (JobState.RUNNING, False, RunPhase.RUNNING)
    assert orders_to_start(taken) == [d.run(job).key], "its node is told that it is to run"
    assert (d.run(job).phases[-1].text, d.run(job).parked_mib) == (text, 0)


def test_a_refused_park_falls_back_to_a_suspend() -> None:
    d = desk()
    job = running(d)
    park(d, job)
    taken = d.step(told(d, RunParkRefused, job, why="no hook"))
    assert stopped(taken.orders) == [(d.run(job).key, StopReason.SUSPENDED)]
    assert story(taken, job) == [(EventKind.PARK_REFUSED, "not parked: no hook; it saves its work and leaves")]
    d.exit(job, yielded=True)
    assert (d.job(job).state, d.job(job).reason) == (JobState.SUSPENDED, Reason.SUSPENDED)


def test_what_is_known_not_to_be_parkable_is_refused_at_once_or_suspended() -> None:
    d = desk(Vector(64_000, 1_024, 8))
    job = running(d)
    refusal = d.reply(SuspendRequested(job, park_only=True))
    assert isinstance(refusal, FailedPrecondition)
    assert refusal.reason == "CANNOT_PARK"
    assert "node n1 has too little memory or CPUs to keep run 1.1 parked" in str(refusal)
    assert d.run(job).phase is RunPhase.RUNNING
    (event,) = [one for one in park(d, job).log if one.job_id == job]
    assert event.kind is EventKind.SUSPEND_REQUESTED
    assert event.text.startswith("not parked: node n1 has too little memory")
    assert d.run(job).stop_reason is StopReason.SUSPENDED


def test_a_run_without_devices_or_that_has_not_begun_cannot_be_parked() -> None:
    d = desk()
    on_cpus, starts = running(d, 0), d.submit(devices=1)
    for job, why in ((on_cpus, "has no devices"), (starts, "is STARTING")):
        refusal = d.reply(SuspendRequested(job, park_only=True))
        assert isinstance(refusal, FailedPrecondition)
        assert why in str(refusal)


def test_a_run_that_has_more_on_its_devices_than_its_node_has_memory_goes_on() -> None:
    d = desk(Vector(64_000, 64 * 1024, 8))
    job = running(d)
    park(d, job, only=True)
    assert d.free().memory_mib == 0, "all that is left is kept until it is known what is needed"
    taken = is_parked(d, job, gib=64)
    assert "takes 65536 MiB, and node n1 has 64512 MiB of memory" in story(taken, job)[0][1]
    assert (d.job(job).state, d.run(job).phase) == (JobState.RUNNING, RunPhase.RUNNING)


def test_a_node_that_does_not_park_in_time_is_told_to_let_the_run_go_on() -> None:
    d = desk()
    job = running(d)
    park(d, job, only=True)
    taken = d.step(after=120)
    assert "node n1 has not done it within 120 s" in story(taken, job)[0][1]
    assert (d.job(job).state, orders_to_start(taken)) == (JobState.RUNNING, [d.run(job).key])


# ---- what cannot go on ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
def test_a_process_that_is_lost_in_a_resume_starts_again_from_its_checkpoint(wanted: bool) -> None:
    d = desk()
    job = parked(d)
    if wanted:
        d.step(ResumeRequested(job))
    taken = d.step(told(d, RunParkRefused, job, why="the driver failed", lost=True))
    assert stopped(taken.orders) == [(d.run(job).key, StopReason.PARKED)]
    d.exit(job, exit_signal=9)
    if wanted:
        assert (d.job(job).state, d.job(job).run) == (JobState.STARTING, 2)
    else:
        assert (d.job(job).state, d.job(job).reason) == (JobState.SUSPENDED, Reason.SUSPENDED)
    assert d.job(job).retries == 0


def test_a_resume_that_takes_too_long_is_given_up_unless_its_node_is_silent() -> None:
    d = desk()
    job = parked(d)
    d.step(ResumeRequested(job))
    d.silence()
    d.step(after=120)
    assert phase(d, job) is OperationPhase.RESUMING
    d.join("n1", ROOMY)
    taken = d.step(after=120)
    assert stopped(taken.orders) == [(d.run(job).key, StopReason.PARKED)]
    d.exit(job, exit_signal=9)
    assert d.job(job).run == 2


def test_a_process_that_ends_while_it_is_parked_fails_its_job() -> None:
    d = desk()
    job = parked(d)
    d.exit(job, exit_signal=9)
    assert (d.job(job).state, d.job(job).reason) == (JobState.FAILED, Reason.SIGNALLED)
    assert d.state.operations.rows == {}
    assert d.runs[(job, 1, 0)].devices == tuple(range(8)), "the row says where it was"  # type: ignore[index]


# ---- what stops a parked run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "state", "run"),
    [
        (CancelRequested, JobState.CANCELLED, 1),
        (RequeueRequested, JobState.STARTING, 2),
    ],
)
def test_a_parked_run_that_is_stopped_is_killed_at_once(asked: Any, state: JobState, run: int) -> None:
    d = desk()
    job = parked(d)
    (order,) = d.step(asked(job)).orders
    assert isinstance(order.desired, Stopped)
    assert order.desired.grace_us == 0
    assert d.free().devices == 8, "it held none"
    d.exit(job, exit_signal=9)
    assert (d.job(job).state, d.job(job).run) == (state, run)


def test_a_drained_node_keeps_a_parked_run_and_an_eviction_leaves_its_job_suspended() -> None:
    d = desk()
    job = parked(d)
    d.step(DrainRequested("n1", "repair", "op"))
    d.step(ResumeRequested(job))
    assert phase(d, job) is OperationPhase.WAITING, "nothing begins on a drained node"
    d.step(SuspendRequested(job))
    d.step(DrainRequested("n1", "", "op", evict=True))
    d.exit(job, exit_signal=9)
    assert (d.job(job).state, d.job(job).reason) == (JobState.SUSPENDED, Reason.SUSPENDED)
    d.step(UndrainRequested("n1"))
    d.step(ResumeRequested(job))
    assert (d.job(job).state, d.job(job).run) == (JobState.STARTING, 2)


def test_a_parked_run_is_not_preempted_and_holds_nothing_up() -> None:
    d = desk()
    job = parked(d)
    assert not d.run(job).phase.preemptible
    trial = d.trial(8)
    assert d.job(trial).state is JobState.STARTING


def test_a_parked_job_cannot_be_resized_or_held() -> None:
    d = desk()
    gang = JobSpec(("x",), Vector(2000, 2048, 2), gang=(TaskGroup(2, Vector(1000, 1024, 1)),), min_tasks=1, max_tasks=4)
    job = begun_gang(d, gang)
    park(d, job)
    refusal = d.reply(ResizeRequested(job, 3))
    assert isinstance(refusal, FailedPrecondition)
    assert "resume it first" in str(refusal)


# ---- nodes ------------------------------------------------------------------------------------------------------------------


def test_a_parked_run_on_a_silent_node_waits_for_it() -> None:
    d = desk()
    job = parked(d)
    d.silence()
    assert d.job(job).state is JobState.UNREACHABLE
    d.step(ResumeRequested(job))
    assert phase(d, job) is OperationPhase.WAITING
    refusal = d.reply(NodeDeleteRequested("n1"))
    assert isinstance(refusal, FailedPrecondition)
    taken = d.join("n1", ROOMY)
    assert orders_to_start(taken) == [d.run(job).key]
    assert d.job(job).state is JobState.STARTING


@pytest.mark.parametrize("resumed", [True, False])
def test_a_parked_run_whose_node_is_gone_is_lost(resumed: bool) -> None:
    d = desk()
    job = parked(d)
    if resumed:
        running(d)
        d.step(ResumeRequested(job))
    d.silence()
    d.step(FenceRequested("n1", "op"))
    assert d.job(job).state is (JobState.QUEUED if resumed else JobState.SUSPENDED)
    assert (d.state.operations.rows, d.job(job).run) == ({}, 1)


def test_a_faulty_device_keeps_a_parked_run_from_resuming() -> None:
    d = desk()
    job = parked(d)
    d.faulty({3: "it is lost"})
    d.step(ResumeRequested(job))
    assert phase(d, job) is OperationPhase.WAITING
    taken = d.faulty({})
    assert orders_to_start(taken) == [d.run(job).key]


def test_an_agent_that_comes_back_is_told_what_is_desired_in_each_phase() -> None:
    d = desk()
    job = running(d)
    key = d.run(job).key

    def desired() -> tuple[type, int]:
        reply = d.step(d.seen("n1", ROOMY)).replies[0]
        (order,) = reply.orders  # type: ignore[union-attr]
        return type(order.desired), order.generation

    park(d, job)
    assert desired() == (Parked, 2)
    is_parked(d, job)
    assert desired() == (Parked, 2)
    d.step(ResumeRequested(job))
    assert desired() == (Running, 3)
    d.step(told(d, RunResumed, job))
    assert desired() == (Running, 3)
    assert d.run(job).key == key


def test_a_run_that_its_node_has_parked_unknown_to_a_restored_database_goes_on() -> None:
    d = desk()
    job = running(d)
    known = (KnownRun(d.run(job).key, RunPhase.PARKED, 7),)
    taken = d.step(NodeSeen("n1", "a", inventory(ROOMY), known))
    (order,) = taken.replies[0].orders  # type: ignore[union-attr]
    assert isinstance(order.desired, Running)
    assert order.generation > 7


# ---- gangs -------------------------------------------------------------------------------------------------------------------


def begun_gang(d: Driver, spec: JobSpec) -> int:
    job = d.submit(spec)
    tasks = len(spec.tasks())
    d.step(*(d.ready(job, task) for task in range(tasks)))
    d.step(*(d.started(job, task) for task in range(tasks)))
    assert d.job(job).state is JobState.RUNNING
    return job


GANG = JobSpec(("x",), Vector(2000, 2048, 16), gang=(TaskGroup(2, Vector(1000, 1024, 8)),))


def test_a_gang_is_parked_and_resumed_as_one() -> None:
    d = desk(nodes=2)
    job, waiting = begun_gang(d, GANG), d.submit(devices=8)
    assert len(park(d, job).orders) == 2
    is_parked(d, job, 0)
    assert (d.run(job, 0).phase, d.free("n1").devices) == (RunPhase.PARKING, 0), "it holds its devices until all are parked"
    taken = is_parked(d, job, 1)
    assert story(taken, job)[0][1] == "parked in 4.00 s: cooperative, 2048 MiB, residue 300 MiB"
    d.start(waiting)
    d.step(ResumeRequested(job))
    assert d.run(job, 1).phase is RunPhase.PARKED, "the devices of one node are of no use"
    assert len(orders_to_start(d.exit(waiting))) == 2
    d.step(told(d, RunResumed, job, 1))
    assert d.job(job).state is JobState.STARTING
    d.step(told(d, RunResumed, job, 0))
    assert (d.job(job).state, d.state.operations.rows) == (JobState.RUNNING, {})


def test_all_tasks_of_a_gang_are_told_the_same_number_of_their_park() -> None:
    """By which their ranks know that they are asked for the same park. Orders that are repeated have it, too."""
    d = desk(nodes=2)
    job = begun_gang(d, GANG)
    numbers = []
    for _ in range(2):
        told_to = [order.desired for order in park(d, job, only=True).orders]
        numbers.append([parked.number for parked in told_to if isinstance(parked, Parked)])
        again = [desired_order(d.job(job), d.run(job, task)) for task in range(2)]
        assert [order.desired.number for order in again if order is not None] == numbers[-1]  # type: ignore[union-attr]
        d.step(told(d, RunParkRefused, job, 1, why="no"))
    assert numbers == [[1, 1], [2, 2]]


def test_a_refusal_of_one_task_lets_the_others_go_on() -> None:
    d = desk(nodes=2)
    job = begun_gang(d, GANG)
    park(d, job, only=True)
    is_parked(d, job, 0)
    taken = d.step(told(d, RunParkRefused, job, 1, why="no"))
    assert len(orders_to_start(taken)) == 2
    assert {run.phase for run in d.state.runs_of(job)} == {RunPhase.RUNNING}
    d.step(told(d, RunResumed, job, 0))
    lost = d.step(told(d, RunParkRefused, job, 0, why="it crashed", lost=True))
    assert len(stopped(lost.orders)) == 2, "a task that is lost on its way back takes the gang with it"


def test_a_task_that_is_done_leaves_the_others_to_be_parked() -> None:
    d = desk(nodes=2)
    job = begun_gang(d, GANG)
    park(d, job)
    is_parked(d, job, 0)
    node, key = d.where(job, 1), d.run(job, 1).key
    d.step(RunExited(node.name, node.boot_id, d._next(node), key))
    assert (d.job(job).state, d.run(job, 0).phase) == (JobState.SUSPENDED, RunPhase.PARKED)
