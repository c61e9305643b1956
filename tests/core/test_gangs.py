"""Gangs: placed whole or not at all, started in two phases, and ended by the first task that fails."""

from random import Random
from typing import Any

import pytest

from scheduler_service.core.engine import step
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import Joined, Launch, Running, RunStarted, Step, Submitted, SuspendRequested
from scheduler_service.core.model import (
    EventKind,
    JobSpec,
    JobState,
    Reason,
    Retry,
    Run,
    RunKey,
    RunPhase,
    StopReason,
    TaskGroup,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, kinds, orders_to_start, orders_to_stop, spec, stopped
from tests.policies.made import fitgpp

SMALL = Vector(4_000, 8_192, 2)
TASK = Vector(1_000, 1_024, 1)


def gang(tasks: int = 3, **more: Any) -> JobSpec:
    total = Vector(*(tasks * part for part in TASK))
    return with_changes(spec(), gang=(TaskGroup(tasks, TASK),), demand=total, **more)


def cluster(nodes: int = 2, settings: Settings = Settings()) -> Driver:  # noqa: B008 (immutable)
    d = Driver(fitgpp(PreemptionSettings()), settings)
    for number in range(nodes):
        d.join(f"n{number + 1}", SMALL)
    return d


def ready(d: Driver, job: int, *tasks: int) -> Step:
    return [d.step(d.ready(job, task)) for task in tasks or range(len(d.job(job).launch_spec.tasks()))][-1]


def begun(d: Driver, tasks: int = 3, **more: Any) -> int:
    """A gang of which every task runs."""
    job = d.submit(gang(tasks, **more))
    ready(d, job)
    for task in range(tasks):
        d.step(d.started(job, task))
    return job


def told_to_go(step: Step) -> list[RunKey]:
    return [order.key for order in step.orders if isinstance(order.desired, Running)]


def written(step: Step) -> list[str]:
    return [change.table for change in step.changes if change.table in ("job", "run")]


# ---- placing -------------------------------------------------------------------------------------------------------------


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    d = cluster(nodes=1)
    waiting = Driver()
    job = waiting.submit(gang(3))
    waiting.join("n1", SMALL)
    assert (waiting.job(job).state, waiting.job(job).reason) == (JobState.QUEUED, Reason.TOO_LARGE)
    assert not waiting.state.runs.rows
    waiting.join("n2", SMALL)
    assert waiting.job(job).state is JobState.STARTING
    refused = d.reply(Submitted("ann", "", gang(3)))
    assert isinstance(refused, FailedPrecondition)
    assert refused.reason == "CLUSTER_TOO_SMALL"


def test_tasks_that_differ_go_where_they_fit_the_largest_first() -> None:
    d = cluster()
    small, large = Vector(500, 64, 0), Vector(4_000, 64, 2)
    total = Vector(5_000, 192, 2)
    job = d.submit(with_changes(spec(), gang=(TaskGroup(2, small), TaskGroup(1, large)), demand=total))
    assert [(run.task, run.node, run.demand) for run in d.state.runs_of(job)] == [
        (0, 2, small),
        (1, 2, small),
        (2, 1, large),
    ]


def test_ranks_count_through_nodes_in_the_order_in_which_they_are_first_used() -> None:
    d = cluster()
    step = d.step(Submitted("ann", "", gang(3)))
    places = [order.desired.gang for order in step.orders if isinstance(order.desired, Launch) and order.desired.gang]
    assert [(p.world_size, p.local_rank, p.local_world_size, p.node_rank, p.nodes) for p in places] == [
        (3, 0, 2, 0, (1, 2)),
        (3, 1, 2, 0, (1, 2)),
        (3, 0, 1, 1, (1, 2)),
    ]


# ---- the two phases ------------------------------------------------------------------------------------------------------


def test_every_task_is_told_to_go_when_the_last_is_ready() -> None:
    d = cluster()
    job = d.submit(gang(3))
    assert not ready(d, job, 2, 0).orders
    last = ready(d, job, 1)
    assert told_to_go(last) == [RunKey(job, 1, 0), RunKey(job, 1, 1), RunKey(job, 1, 2)]
    assert d.job(job).rendezvous == "n1:20000"
    assert kinds(last, job) == [EventKind.GANG_READY]
    for task in range(3):
        assert d.job(job).state is JobState.STARTING
        d.step(d.started(job, task))
    assert (d.job(job).state, d.job(job).start_by_us) == (JobState.RUNNING, None)


def test_a_node_that_was_away_is_told_to_go_when_it_is_back() -> None:
    """With the whole gang's places, though another task is over already."""
    d = cluster()
    job = d.submit(gang(3))
    ready(d, job)
    d.step(d.started(job, 0))
    d.step(d.exited(job, 0))
    reply = d.join("n2", SMALL).replies[0]
    assert isinstance(reply, Joined)
    (order,) = reply.orders
    assert isinstance(order.desired, Running)
    gang_of_order = order.desired.gang
    assert gang_of_order is not None
    assert (gang_of_order.world_size, gang_of_order.node_rank, gang_of_order.nodes) == (3, 1, (1, 2))
    assert (order.desired.job.rendezvous, order.generation) == ("n1:20000", 2)


def test_a_gang_that_is_late_is_released_and_tried_elsewhere() -> None:
    d = cluster(nodes=3, settings=Settings(gang_start_us=30 * SECOND))
    job = d.submit(gang(3))
    ready(d, job, 0, 1)
    assert not d.step(after=29).orders
    told = d.step(after=1)
    assert {(why, key.task) for key, why in stopped(told.orders)} == {(StopReason.GANG, t) for t in range(3)}
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.GANG_NOT_READY)
    assert d.job(job).detail == "1 of 3 tasks were not ready in time, on n2"
    assert (d.node("n2").strikes, d.node("n1").strikes) == (1, 0)
    for task in range(3):
        d.step(d.exited(job, task, yielded=True))
    assert d.job(job).state is JobState.STARTING
    assert {run.node for run in d.state.runs_of(job)} == {1, 3}


def test_a_task_that_was_told_to_go_and_did_not_begin_is_late_too() -> None:
    d = cluster(settings=Settings(gang_start_us=30 * SECOND))
    job = d.submit(gang(3))
    ready(d, job)
    for task in (0, 1):
        d.step(d.started(job, task))
    d.step(after=30)
    assert (d.job(job).reason, d.job(job).avoid) == (Reason.GANG_NOT_READY, (2,))


def test_a_gang_that_fails_as_the_last_of_it_becomes_ready_is_not_told_to_go() -> None:
    """In one batch: an agent that hears `stop` and then `go` must not begin."""
    d = cluster()
    job = d.submit(gang(3))
    ready(d, job, 0, 1)
    step = d.step(d.ready(job, 2), d.exited(job, 0, launch_error="no such file"))
    assert told_to_go(step) == []
    assert orders_to_stop(step) == [RunKey(job, 1, 1), RunKey(job, 1, 2)]


def test_a_prepared_task_that_its_agent_lost_is_lost() -> None:
    d = cluster()
    job = d.submit(gang(3))
    ready(d, job, 0)
    d.join("n1", SMALL, known=(RunKey(job, 1, 1),))
    assert (d.job(job).state, d.job(job).verdict) == (JobState.STOPPING, Reason.NODE_LOST)


def test_a_gang_that_is_cancelled_while_it_gets_ready() -> None:
    d = cluster()
    job = d.submit(gang(3))
    ready(d, job, 0)
    assert len(orders_to_stop(d.cancel(job))) == 3
    assert not ready(d, job, 1, 2).orders, "too late to begin"
    for task in range(3):
        d.step(d.exited(job, task, yielded=True))
    assert d.job(job).state is JobState.CANCELLED


# ---- the end -------------------------------------------------------------------------------------------------------------


def test_a_gang_has_succeeded_when_its_last_task_has() -> None:
    d = cluster()
    job = begun(d)
    first = d.step(d.exited(job, 1))
    assert kinds(first, job) == [EventKind.TASK_ENDED]
    assert (d.job(job).state, d.free("n1")) == (JobState.RUNNING, Vector(3_000, 7_168, 1))
    d.step(d.exited(job, 0))
    d.step(d.exited(job, 2))
    assert (d.job(job).state, d.job(job).exit_code) == (JobState.SUCCEEDED, 0)


def test_one_task_that_fails_takes_the_others_with_it_and_is_what_is_said() -> None:
    d = cluster()
    job = begun(d)
    told = d.step(d.exited(job, 2, exit_code=7))
    assert [(key.task, why) for key, why in stopped(told.orders)] == [(0, StopReason.GANG), (1, StopReason.GANG)]
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.TASK_FAILED)
    d.step(d.exited(job, 0, exit_signal=15))
    d.step(d.exited(job, 1, yielded=True))
    assert (d.job(job).state, d.job(job).reason, d.job(job).exit_code, d.job(job).exit_signal) == (
        JobState.FAILED,
        Reason.EXITED,
        7,
        0,
    )


def test_the_node_of_the_task_that_failed_is_avoided_and_not_that_of_the_last_to_leave() -> None:
    d = cluster(nodes=3)
    job = begun(d, retry=Retry(1))
    d.step(d.exited(job, 2, exit_code=7))
    d.step(d.exited(job, 1, yielded=True))
    d.step(d.exited(job, 0, yielded=True))
    assert (d.job(job).failed_on, d.job(job).avoid) == ((2,), (2,))
    assert d.job(job).detail == "run 1 left with exit code 7; retry 1 of 1"


def test_the_end_of_a_gang_names_the_node_of_the_task_that_failed() -> None:
    d = cluster(nodes=3)
    job = begun(d)
    d.step(d.exited(job, 2, exit_code=7))
    d.step(d.exited(job, 1, yielded=True))
    told = d.step(d.exited(job, 0, yielded=True))
    (ended,) = (event for event in told.log if event.kind is EventKind.ENDED)
    assert (ended.node, ended.exit_code) == (2, 7)


def test_a_task_that_left_before_it_began_saved_nothing() -> None:
    d = cluster()
    job = d.submit(gang(2))
    told = [d.step(SuspendRequested(job)), d.step(d.exited(job, 0, yielded=True)), d.step(d.exited(job, 1, yielded=True))]
    texts = [event.text for step in told for event in step.log if event.kind in (EventKind.TASK_ENDED, EventKind.SUSPENDED)]
    assert texts == ["task 0 left before it began", "left before it began; it took 0.00 s to stop"]


def test_one_node_lost_releases_the_others_and_the_gang_queues_again() -> None:
    d = cluster()
    job = begun(d)
    d.join("n2", SMALL, boot="b", known=())
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.TASK_FAILED)
    d.step(d.exited(job, 0, yielded=True))
    left = d.step(d.exited(job, 1, exit_signal=15))
    assert [event.reason for event in left.log if event.kind is EventKind.REQUEUED] == [Reason.NODE_LOST]
    assert len(orders_to_start(left)) == 3
    assert (d.job(job).retries, d.job(job).state) == (0, JobState.STARTING)


def test_a_gang_on_two_silent_nodes_is_unreachable_until_both_are_back() -> None:
    d = cluster()
    job = begun(d)
    d.silence("n1")
    d.silence("n2")
    d.join("n1", SMALL)
    assert (d.job(job).state, d.job(job).reason) == (JobState.UNREACHABLE, Reason.NODE_SILENT)
    d.join("n2", SMALL)
    assert (d.job(job).state, d.job(job).reason) == (JobState.RUNNING, Reason.NONE)


def test_the_task_on_a_silent_node_that_ends_leaves_the_others_in_sight() -> None:
    d = cluster()
    job = begun(d)
    d.silence("n2")
    d.step(d.exited(job, 2))
    assert (d.job(job).state, d.job(job).reason) == (JobState.RUNNING, Reason.NONE)


def test_a_task_that_is_over_before_its_start_was_reported_holds_up_nobody() -> None:
    d = cluster(settings=Settings(gang_start_us=30 * SECOND))
    job = d.submit(gang(3))
    ready(d, job)
    d.step(d.started(job, 0), d.started(job, 1))
    d.step(d.exited(job, 2))
    assert (d.job(job).state, d.job(job).start_by_us) == (JobState.RUNNING, None)
    assert not d.step(after=60).orders


@pytest.mark.parametrize("told", [False, True])
def test_a_gang_leaves_together_and_waits_for_its_last_task(told: bool) -> None:
    d = cluster()
    job = begun(d)
    if told:
        d.step(d.exited(job, 0))
    assert len(orders_to_stop(d.step(SuspendRequested(job)))) == 3 - told
    for task in range(int(told), 3):
        assert d.job(job).state is JobState.STOPPING
        d.step(d.exited(job, task, yielded=True))
    assert d.job(job).state is JobState.SUSPENDED


def test_a_gang_is_preempted_whole() -> None:
    d = cluster()
    job = begun(d, tasks=4)
    trial = d.trial(2)
    assert {run.phase for run in d.state.runs_of(job)} == {RunPhase.STOPPING}
    assert d.job(job).preempted_for_trial == 1
    for task in range(4):
        d.step(d.exited(job, task, yielded=True))
    assert d.states(job, trial) == [JobState.QUEUED, JobState.STARTING]


class Counted(dict[RunKey, Run]):
    """Rows of which is counted how many were looked at."""

    looked = 0

    def __getitem__(self, key: RunKey) -> Run:
        self.looked += 1
        return super().__getitem__(key)


def test_a_report_looks_at_as_few_tasks_of_a_wide_gang_as_of_a_narrow_one() -> None:
    def looked(tasks: int) -> int:
        """At most, for any report but the one that makes the gang begin."""
        d = cluster(nodes=tasks // 2)
        job, most = d.submit(gang(tasks)), 0
        runs = d.state.runs_of(job)
        for report in (d.ready, d.started, d.exited):
            for run in runs:
                event = report(job, run.task)
                rows = d.state.runs.rows = Counted(d.state.runs.rows)
                step(d.state, (event,), d.now, Random(0), d.policy)
                last = report == d.ready and run is runs[-1]
                most = most if last else max(most, rows.looked)
                d.state.adopt()
        assert d.state.jobs.rows == {}
        return most

    assert looked(40) == looked(4)


def test_reports_of_a_launch_that_is_over_do_not_touch_the_next() -> None:
    d = cluster()
    job = begun(d)
    late = d.run(job, 2).key
    d.join("n2", SMALL, boot="b", known=())
    for task in (0, 1):
        d.step(d.exited(job, task, yielded=True))
    assert d.job(job).run == 2
    d.step(RunStarted("n2", "b", 1, late))
    assert {run.phase for run in d.state.runs_of(job)} == {RunPhase.STARTING}


def test_of_a_wide_gang_only_the_first_and_the_last_task_change_the_jobs_row() -> None:
    """It names the nodes of all tasks."""
    d = cluster(nodes=4)
    job = d.submit(gang(5, time_limit_us=60 * SECOND))
    ready(d, job)
    assert [written(d.step(d.started(job, task))) for task in range(5)] == [
        ["run", "job"],
        *[["run"]] * 3,
        ["run", "job"],
    ]
    assert d.job(job).state is JobState.RUNNING
    assert [written(d.step(d.exited(job, task))) for task in range(5)] == [*[["run"]] * 4, ["run", "job"]]
    assert d.job(job).state is JobState.SUCCEEDED
