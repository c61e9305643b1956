"""Parked jobs go on elsewhere when their own devices are taken, and lose nothing whatever fails on the way."""

from random import Random
from typing import Any

import pytest

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    HoldRequested,
    MigrateRequested,
    Parked,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    Running,
    RunParked,
    RunParkRefused,
    RunReady,
    Step,
    Stopped,
    SuspendRequested,
    Warming,
)
from scheduler_service.core.model import EventKind, JobState, OperationKind, OperationPhase, Reason, Run, RunPhase, StopReason
from scheduler_service.core.model.configurations import NodeSelector, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Vector
from scheduler_service.core.operations.moving_parked import MOST_MOVES
from scheduler_service.policies.explain.explain import explain
from scheduler_service.policies.fifo import fifo
from scheduler_service.policies.placing.first_fit import place
from scheduler_service.policies.placing.resume_placement import resuming_elsewhere
from scheduler_service.policies.stages import Stages
from tests.core.driver import Driver, spec
from tests.core.test_parking import begun_gang

ROOMY = Vector(64_000, 2 * 1024 * 1024, 2)
GIB = 1 << 30


def desk(*names: str, capacity: Vector = ROOMY) -> Driver:
    d = Driver(resuming_elsewhere(fifo, place))
    for name in names or ("n1", "n2"):
        d.join(name, capacity)
    return d


def told(d: Driver, run: Run, kind: Any, **facts: Any) -> Step:
    """The next report of the run's node."""
    node = d.state.nodes.rows[run.node]
    return d.step(kind(node.name, node.boot_id, d._next(node), run.key, **facts))


def parked(d: Driver, devices: int = 2, saves: bool = True) -> int:
    """A job that has run on these devices of the first node with room, and is parked."""
    job = d.submit(devices=devices)
    d.start(job)
    d.step(SuspendRequested(job, park=True))
    told(d, d.run(job), RunParked, rung="cooperative", moved_bytes=GIB, saves=saves)
    assert d.job(job).state is JobState.SUSPENDED
    return job


def taken(d: Driver, devices: int = 2) -> int:
    """A job that holds the first idle devices."""
    job = d.submit(devices=devices)
    d.start(job)
    return job


def operation(d: Driver, job: int) -> tuple[OperationKind, OperationPhase] | None:
    number = d.state.operation_of.get(job)
    row = None if number is None else d.state.operations.rows[number]
    return None if row is None else (row.kind, row.phase)


def target(d: Driver, job: int, task: int = 0) -> Run:
    key = d.state.operations.rows[d.state.operation_of[job]].target
    assert key is not None
    return d.state.runs.rows[key._replace(task=task)]


def moving(d: Driver, **wants: Any) -> int:
    """A job whose devices are taken, and which is going to the second node."""
    job = parked(d, **wants)
    taken(d)
    d.step(ResumeRequested(job))
    assert operation(d, job) == (OperationKind.MIGRATE, OperationPhase.WARMING)
    return job


def saving(d: Driver) -> int:
    job = moving(d)
    told(d, target(d, job), RunReady, address="a", port=7)
    assert operation(d, job) == (OperationKind.MIGRATE, OperationPhase.SAVING)
    return job


MOVING = OperationKind.MIGRATE, OperationPhase.WARMING
WAITING = OperationKind.PARK, OperationPhase.WAITING
ASIDE = OperationKind.PARK, OperationPhase.PARKED


# ---- the way there ---------------------------------------------------------------------------------------------------------


def test_a_resume_whose_devices_are_taken_moves_at_once() -> None:
    d = desk()
    job = parked(d)
    taken(d)
    before = d.run(job).key
    (order,) = d.step(ResumeRequested(job)).orders
    assert (type(order.desired), order.node) == (Warming, 2)
    assert (operation(d, job), d.run(job).phase) == (MOVING, RunPhase.PARKED)
    assert (d.job(job).state, d.job(job).reason, d.job(job).suspend_requested) == (JobState.SUSPENDED, Reason.RESUMED, False)
    d.now += 2_000_000
    (order,) = told(d, target(d, job), RunReady, address="a", port=7).orders
    assert isinstance(order.desired, Stopped)
    assert (order.key, order.desired.reason, order.desired.grace_us) == (before, StopReason.MIGRATED, 10_000_000)
    assert (d.job(job).state, d.run(job).is_parked) == (JobState.STOPPING, True)
    (order,) = d.exit(job, yielded=True, told=True).orders
    assert (type(order.desired), order.node, d.job(job).run) == (Running, 2, 2)
    step = d.step(d.started(job), after=3)
    assert operation(d, job) is None
    assert (d.job(job).state, d.where(job).name) == (JobState.RUNNING, "n2")
    assert [line.text for line in step.log if line.kind is EventKind.MIGRATED] == [
        "moved to n2: ready in 2.00 s while it was parked; then saved in 0.00 s, and started in 3.00 s"
    ]
    d.exit(job)
    assert d.job(job).state is JobState.SUCCEEDED


def test_the_calls_may_be_repeated_and_refused_ones_change_nothing() -> None:
    d = desk()
    job = moving(d)
    for phase in (OperationPhase.WARMING, OperationPhase.SAVING):
        assert operation(d, job) == (OperationKind.MIGRATE, phase)
        before = d.state.snapshot()
        for request in (ResumeRequested(job), MigrateRequested(job, ("n2",))):
            assert d.reply(request) == Accepted(job)
            assert d.state.snapshot() == before
        for request in (HoldRequested(job), ResizeRequested(job, 2)):
            assert isinstance(d.reply(request), FailedPrecondition)
            assert d.state.snapshot() == before
        if phase is OperationPhase.WARMING:
            told(d, target(d, job), RunReady, address="a", port=7)


def test_other_devices_of_its_node_come_first() -> None:
    d = desk("n1", "n2", capacity=ROOMY._replace(devices=4))
    job = parked(d)
    taken(d)
    (order,) = d.step(ResumeRequested(job)).orders
    assert (order.node, target(d, job).devices) == (1, (2, 3))
    told(d, target(d, job), RunReady, address="a", port=7)
    d.exit(job, yielded=True, told=True)
    step = d.step(d.started(job))
    (line,) = [line.text for line in step.log if line.kind is EventKind.MIGRATED]
    assert line.startswith("moved to other devices of its node: ready in 0.00 s while it was parked; then saved")


def test_it_resumes_in_place_if_its_own_devices_are_idle() -> None:
    d = desk()
    job = parked(d)
    (order,) = d.step(ResumeRequested(job)).orders
    assert (type(order.desired), order.node, operation(d, job)) == (
        Running,
        1,
        (OperationKind.PARK, OperationPhase.RESUMING),
    )


def test_it_waits_and_moves_as_soon_as_there_is_room_anywhere_before_jobs_that_wait() -> None:
    d = desk()
    job = parked(d)
    taken(d)
    other = taken(d)
    later = d.submit(devices=2)
    assert not d.step(ResumeRequested(job)).orders
    assert operation(d, job) == WAITING
    (order,) = d.exit(other).orders
    assert (type(order.desired), order.key.job_id, order.node) == (Warming, job, 2)
    assert d.job(later).state is JobState.QUEUED


def test_explanations_say_what_it_waits_for() -> None:
    d = desk()
    job = parked(d)
    first, second = taken(d), taken(d)
    d.step(ResumeRequested(job))

    def blockers() -> list[tuple[str, int]]:
        found = explain(d.state, d.job(job), d.now, Random(0), Stages(fifo))
        return [(blocker.detail, blocker.cause_job) for blocker in found.blockers]

    why = "there is no room elsewhere: job {} has device {} of node n1"
    assert blockers() == [(why.format(first, index), first) for index in (0, 1)]
    d.exit(second)
    assert operation(d, job) == MOVING
    assert blockers() == []


def test_a_program_that_cannot_save_waits_for_its_own_devices() -> None:
    d = desk()
    job = parked(d, saves=False)
    holder = taken(d)
    assert not d.step(ResumeRequested(job)).orders
    assert operation(d, job) == WAITING
    (order,) = d.exit(holder).orders
    assert (type(order.desired), order.node) == (Running, 1)


def test_it_goes_only_where_its_job_may_run() -> None:
    d = desk()
    job = d.submit(with_changes(spec(2), nodes=NodeSelector(("n1",))))
    d.start(job)
    d.step(SuspendRequested(job, park=True))
    told(d, d.run(job), RunParked, rung="cooperative", moved_bytes=GIB, saves=True)
    taken(d)
    d.step(ResumeRequested(job))
    assert operation(d, job) == WAITING


# ---- by hand ---------------------------------------------------------------------------------------------------------------


def test_a_parked_job_that_is_migrated_goes_on_there() -> None:
    d = desk()
    job = parked(d)
    assert d.reply(MigrateRequested(job, ("n2",))) == Accepted(job)
    assert operation(d, job) == MOVING
    assert not d.job(job).suspend_requested
    before = d.state.snapshot()
    assert d.reply(MigrateRequested(job, ("n2",))) == Accepted(job), "it may be repeated"
    assert d.state.snapshot() == before


def test_a_parked_job_that_is_migrated_to_its_own_node_resumes() -> None:
    d = desk()
    job = parked(d)
    assert d.reply(MigrateRequested(job, ("n1",))) == Accepted(job)
    assert operation(d, job) == (OperationKind.PARK, OperationPhase.RESUMING)


def test_a_parked_job_that_is_migrated_to_its_own_node_goes_nowhere_else() -> None:
    """Its devices are taken, there are no others, and the second node is idle."""
    d = desk()
    job = parked(d)
    other = taken(d)
    before = d.state.snapshot()
    refused = d.reply(MigrateRequested(job, ("n1",)))
    assert isinstance(refused, FailedPrecondition)
    assert (refused.reason, str(refused)) == (
        "NO_ROOM_THERE",
        f"job {job} needs 2 devices, and node n1 has 0 idle devices that it can use (job {other} has device 0 of node n1); "
        f"resume the job to have it wait for its own devices, or go on where there is room",
    )
    assert operation(d, job) == ASIDE
    assert d.state.snapshot() == before
    d.exit(other)
    assert d.reply(MigrateRequested(job, ("n1",))) == Accepted(job)
    assert operation(d, job) == (OperationKind.PARK, OperationPhase.RESUMING)


def test_a_parked_job_that_is_migrated_to_its_own_node_goes_to_idle_devices_of_that() -> None:
    d = desk("n1", "n2", capacity=ROOMY._replace(devices=3))
    job = parked(d, devices=1)
    taken(d)
    assert d.reply(MigrateRequested(job, ("n1",))) == Accepted(job)
    assert operation(d, job) == MOVING
    assert (target(d, job).node, target(d, job).devices) == (1, (2,))


def test_one_that_cannot_save_is_not_migrated() -> None:
    d = desk()
    job = parked(d, saves=False)
    before = d.state.snapshot()
    refused = d.reply(MigrateRequested(job, ("n2",)))
    assert isinstance(refused, FailedPrecondition)
    assert "cannot save its work while it is parked" in str(refused)
    assert operation(d, job) == ASIDE
    assert d.state.snapshot() == before


# ---- what fails ------------------------------------------------------------------------------------------------------------


def away(d: Driver, job: int) -> None:
    """Nothing is kept for the job elsewhere."""
    assert not [run for run in d.state.runs.rows.values() if run.awaits and run.job_id == job]


def test_it_waits_as_before_if_its_destination_is_lost() -> None:
    d = desk()
    job = moving(d)
    d.silence("n2")
    away(d, job)
    assert operation(d, job) == WAITING
    assert (d.run(job).phase, d.job(job).state, d.job(job).reason) == (RunPhase.PARKED, JobState.SUSPENDED, Reason.RESUMED)


def test_one_that_was_migrated_by_hand_is_parked_as_before_if_its_destination_is_lost() -> None:
    d = desk()
    job = parked(d)
    d.step(MigrateRequested(job, ("n2",)))
    d.silence("n2")
    away(d, job)
    assert (operation(d, job), d.job(job).suspend_requested) == (ASIDE, True)


def test_it_does_not_try_for_ever() -> None:
    d = desk()
    job = moving(d)
    for _ in range(MOST_MOVES):
        assert operation(d, job) == MOVING
        d.step(after=301)
    assert operation(d, job) == WAITING
    away(d, job)
    d.step(after=301)
    assert operation(d, job) == WAITING
    assert d.reply(MigrateRequested(job, ("n2",))) == Accepted(job), "its user may try"
    assert operation(d, job) == MOVING


def test_a_save_that_fails_leaves_it_parked() -> None:
    d = desk()
    job = saving(d)
    (order,) = told(d, d.run(job), RunParkRefused, why="the disk is full").orders[:1]
    assert operation(d, job) == WAITING
    away(d, job)
    assert isinstance(order.desired, Parked)
    assert (d.run(job).phase, d.run(job).stop_reason, d.job(job).state) == (RunPhase.PARKED, None, JobState.SUSPENDED)
    d.step(after=60)
    assert operation(d, job) == WAITING, "it does not try again"
    (holder,) = d.state.active.keys() - {job}
    assert isinstance(d.exit(holder).orders[0].desired, Running)
    assert operation(d, job) == (OperationKind.PARK, OperationPhase.RESUMING)


def test_a_save_that_fails_after_its_destination_was_lost_leaves_it_parked() -> None:
    d = desk()
    job = saving(d)
    d.silence("n2")
    assert operation(d, job) is None
    told(d, d.run(job), RunParkRefused, why="the disk is full")
    assert (operation(d, job), d.run(job).phase) == (WAITING, RunPhase.PARKED)


def test_a_save_that_fails_of_a_job_that_was_cancelled_since() -> None:
    d = desk()
    job = saving(d)
    d.step(CancelRequested(job))
    step = told(d, d.run(job), RunParkRefused, why="the disk is full")
    (order,) = [order for order in step.orders if order.key == d.run(job).key]
    assert isinstance(order.desired, Stopped)
    assert order.desired.grace_us == 0
    d.exit(job, exit_signal=9)
    assert d.ended[job].state is JobState.CANCELLED


def test_a_process_that_dies_while_it_saves_begins_from_its_last_checkpoint() -> None:
    d = desk()
    job = saving(d)
    d.exit(job, exit_signal=9, told=True)
    assert (d.job(job).run, d.job(job).state, d.where(job).name) == (2, JobState.STARTING, "n2")


def test_a_reboot_of_the_node_on_which_it_moves_takes_both_runs_and_it_starts_again() -> None:
    d = desk("n1", capacity=ROOMY._replace(devices=4))
    job = saving(d)
    assert {run.node for run in d.state.runs.rows.values() if run.job_id == job} == {1}
    d.join("n1", ROOMY._replace(devices=4), boot="b", known=())
    assert (operation(d, job), d.job(job).state, d.job(job).run) == (None, JobState.STARTING, 3)


@pytest.mark.parametrize("ends", [CancelRequested, RequeueRequested])
def test_what_stops_the_job_meanwhile_kills_it_where_it_is_parked(ends: Any) -> None:
    d = desk()
    job = moving(d)
    step = d.step(ends(job))
    (order,) = [order for order in step.orders if order.key == d.run(job).key]
    assert isinstance(order.desired, Stopped)
    assert order.desired.grace_us == 0
    away(d, job)
    d.exit(job, exit_signal=9)
    assert job in d.ended or d.job(job).state in (JobState.QUEUED, JobState.STARTING)


def test_a_user_who_suspends_it_again_has_it_parked() -> None:
    d = desk()
    job = moving(d)
    step = d.step(SuspendRequested(job, park=True))
    assert step.replies == (Accepted(job),)
    assert [line.kind for line in step.log] == [EventKind.SUSPEND_REQUESTED, EventKind.MIGRATION_FAILED]
    away(d, job)
    assert (operation(d, job), d.job(job).suspend_requested) == (ASIDE, True)


def test_a_process_that_dies_while_it_is_parked_and_about_to_move() -> None:
    d = desk()
    job = moving(d)
    d.exit(job, exit_signal=9)
    away(d, job)
    assert operation(d, job) is None
    assert d.job(job).state in (JobState.QUEUED, JobState.STARTING) if job not in d.ended else True


# ---- gangs -----------------------------------------------------------------------------------------------------------------


def gang(d: Driver) -> int:
    job = begun_gang(d, with_changes(spec(2), gang=(TaskGroup(2, Vector(1_000, 1_024, 1)),), demand=Vector(2_000, 2_048, 2)))
    d.start(job)
    d.step(SuspendRequested(job, park=True))
    for task in (0, 1):
        told(d, d.run(job, task), RunParked, rung="cooperative", moved_bytes=GIB, saves=True)
    taken(d)
    d.step(ResumeRequested(job))
    assert operation(d, job) == MOVING
    for task in (0, 1):
        told(d, target(d, job, task), RunReady, address="a", port=7)
    return job


def test_a_gang_moves_as_one() -> None:
    d = desk()
    job = gang(d)
    d.exit(job, yielded=True, told=True)
    assert d.job(job).run == 1
    d.exit(job, task=1, yielded=True, told=True)
    assert (d.job(job).run, {run.node for run in d.state.runs_of(job)}) == (2, {2})


def test_a_gang_of_which_one_cannot_save_begins_from_its_last_checkpoint() -> None:
    d = desk()
    job = gang(d)
    step = told(d, d.run(job, 1), RunParkRefused, why="the disk is full")
    (order,) = [order for order in step.orders if order.key == d.run(job, 1).key]
    assert isinstance(order.desired, Stopped)
    assert order.desired.grace_us == 0
    d.exit(job, yielded=True, told=True)
    d.exit(job, task=1, exit_signal=9, told=True)
    assert (d.job(job).run, d.job(job).state) == (3, JobState.STARTING)
