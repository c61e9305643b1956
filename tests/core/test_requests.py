"""What users ask of their jobs, in every state in which they may ask."""

import pytest

from scheduler_service.core.errors import FailedPrecondition, NotFound
from scheduler_service.core.messages import (
    Accepted,
    HoldRequested,
    JobRequest,
    NodeSilent,
    Order,
    ReleaseRequested,
    RequeueRequested,
    ResumeRequested,
    Stopped,
    SuspendRequested,
    UpdateRequested,
)
from scheduler_service.core.model import Array, EventKind, JobState, NodeState, Reason, Retry, RunKey, StopReason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, kinds, orders_to_start, orders_to_stop, spec, stopped
from tests.policies.made import fitgpp

SMALL = Vector(4_000, 8_192, 1)


def cluster(settings: Settings = Settings()) -> Driver:  # noqa: B008 (immutable)
    d = Driver(fitgpp(PreemptionSettings()), settings)
    d.join(capacity=SMALL)
    return d


def running(d: Driver) -> int:
    job = d.submit(spec())
    d.start(job)
    return job


def preempted(d: Driver) -> tuple[int, int]:
    job = running(d)
    return job, d.trial()


def suspended(d: Driver) -> int:
    job = running(d)
    d.step(SuspendRequested(job))
    d.exit(job, yielded=True)
    return job


def refused(d: Driver, event: JobRequest) -> FailedPrecondition:
    before = d.state.snapshot()["rows"]
    reply = d.reply(event)
    assert isinstance(reply, FailedPrecondition), reply
    after = d.state.snapshot()["rows"]
    assert after == before
    return reply


# ---- suspend and resume --------------------------------------------------------------------------------------------------


def test_a_suspended_run_leaves_and_frees_its_devices() -> None:
    d = cluster()
    job, waiting = running(d), d.submit()
    told = d.step(SuspendRequested(job))
    assert told.orders == (Order(1, RunKey(job, 1), 2, Stopped(10 * SECOND, StopReason.SUSPENDED)),)
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.SUSPENDED)
    left = d.exit(job, yielded=True)
    assert (d.job(job).state, d.job(job).reason) == (JobState.SUSPENDED, Reason.SUSPENDED)
    assert kinds(left, job) == [EventKind.SUSPENDED]
    assert d.job(waiting).state is JobState.STARTING


def test_a_suspended_job_does_not_return_by_itself_and_comes_first_when_it_is_resumed() -> None:
    d = cluster()
    job = suspended(d)
    d.step(after=86_400)
    assert d.job(job).state is JobState.SUSPENDED
    other, waiting = running(d), d.submit()
    assert kinds(d.step(ResumeRequested(job)), job) == [EventKind.RESUMED, EventKind.REQUEUED]
    assert (d.job(job).state, d.job(job).reason) == (JobState.QUEUED, Reason.RESUMED)
    assert d.reply(ResumeRequested(job)) == Accepted(job)
    d.exit(other)
    assert d.states(job, waiting) == [JobState.STARTING, JobState.QUEUED]
    assert d.job(job).run == 2


def test_suspending_a_preempted_job_sets_it_aside_when_it_has_left() -> None:
    d = cluster()
    job, trial = preempted(d)
    assert not orders_to_stop(d.step(SuspendRequested(job))), "it was told to leave before"
    d.exit(job, yielded=True)
    assert d.states(job, trial) == [JobState.SUSPENDED, JobState.STARTING]


def test_resuming_a_job_that_is_still_leaving_queues_it_when_it_has_left() -> None:
    d = cluster()
    job = running(d)
    d.step(SuspendRequested(job))
    assert d.reply(ResumeRequested(job)) == Accepted(job)
    assert d.reply(ResumeRequested(job)) == Accepted(job), "it is safe to repeat"
    assert d.job(job).state is JobState.STOPPING
    left = d.exit(job, yielded=True)
    assert [event.reason for event in left.log if event.kind is EventKind.REQUEUED] == [Reason.RESUMED]
    assert (d.job(job).state, d.job(job).run) == (JobState.STARTING, 2)


def test_a_run_that_finishes_while_it_is_suspended_has_succeeded() -> None:
    d = cluster()
    job = running(d)
    d.step(SuspendRequested(job))
    d.exit(job, exit_code=0)
    assert d.job(job).state is JobState.SUCCEEDED


@pytest.mark.parametrize("begun", [False, True])
def test_a_suspended_job_whose_node_reboots_stays_aside(begun: bool) -> None:
    d = cluster()
    job = d.submit()
    if begun:
        d.start(job)
    d.step(SuspendRequested(job))
    d.join(capacity=SMALL, boot="b", known=())
    assert d.job(job).state is JobState.SUSPENDED


def test_a_suspended_job_that_could_not_be_launched_is_not_retried_before_it_is_resumed() -> None:
    """It must not queue while it is marked as suspended."""
    d = cluster()
    job = d.submit(with_changes(spec(), retry=Retry(2)))
    d.step(SuspendRequested(job))
    d.exit(job, launch_error="no such folder")
    d.step(after=3600)
    assert (d.job(job).state, d.job(job).retries) == (JobState.SUSPENDED, 1)
    d.step(ResumeRequested(job))
    assert d.job(job).state is JobState.STARTING


def test_an_unreachable_job_is_suspended_when_its_node_is_back() -> None:
    d = cluster()
    job = running(d)
    d.silence()
    d.step(SuspendRequested(job))
    assert (d.job(job).state, d.job(job).reason) == (JobState.UNREACHABLE, Reason.NODE_SILENT)
    d.join(capacity=SMALL)
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.SUSPENDED)
    d.exit(job, yielded=True)
    assert d.job(job).state is JobState.SUSPENDED


def test_what_cannot_be_suspended_or_resumed() -> None:
    d = cluster()
    job, queued = running(d), d.submit()
    array = d.submit(with_changes(spec(), array=Array(2)))
    assert "hold" in str(refused(d, SuspendRequested(queued)))
    assert "array" in str(refused(d, SuspendRequested(array)))
    assert refused(d, ResumeRequested(job)).metadata == {"job_id": str(job), "state": "RUNNING"}
    refused(d, ResumeRequested(queued))
    d.cancel(job)
    refused(d, SuspendRequested(job))
    assert isinstance(d.reply(SuspendRequested(99)), NotFound)


def test_an_array_is_not_suspended_held_or_put_back_as_a_whole() -> None:
    d = cluster()
    array = d.submit(with_changes(spec(), array=Array(2)))
    (first,) = d.state.elements_of[array]
    assert str(refused(d, SuspendRequested(array))).endswith("suspend those, and hold it to keep others from starting")
    assert str(refused(d, RequeueRequested(array))).endswith("whose elements are jobs: put those back that run")
    d.exit(first)
    assert str(refused(d, SuspendRequested(array))).endswith("whose elements are jobs: suspend those")
    assert str(refused(d, HoldRequested(array))).endswith("whose elements are jobs: all have begun: suspend those that run")


def test_a_suspended_job_whose_time_is_over_is_resumed_with_a_longer_limit() -> None:
    d = cluster()
    job = d.submit(with_changes(spec(grace=30), time_limit_us=60 * SECOND))
    d.start(job)
    d.step(after=60)
    assert d.run(job).stop_reason is StopReason.TIME_LIMIT
    d.step(SuspendRequested(job), after=1)
    d.exit(job, yielded=True)
    assert d.job(job).state is JobState.SUSPENDED
    assert "its time limit is over: give it a longer one first" in str(refused(d, ResumeRequested(job)))
    d.step(UpdateRequested(job, time_limit_us=100 * SECOND))
    d.step(ResumeRequested(job))
    d.start(job)
    assert d.job(job).limit_us == d.now + 39 * SECOND


def test_a_suspended_job_can_be_cancelled_and_need_not_be_held() -> None:
    d = cluster()
    job = suspended(d)
    assert "it stays aside until it is resumed" in str(refused(d, HoldRequested(job)))
    d.cancel(job)
    assert d.job(job).state is JobState.CANCELLED


# ---- hold and release ----------------------------------------------------------------------------------------------------


def test_a_held_job_does_not_start_until_it_is_released() -> None:
    d = Driver()
    job = d.submit()
    assert kinds(d.step(HoldRequested(job)), job) == [EventKind.HELD]
    d.join()
    assert (d.job(job).state, d.job(job).reason) == (JobState.QUEUED, Reason.HELD)
    assert kinds(d.step(ReleaseRequested(job)), job) == [EventKind.RELEASED, EventKind.PLACED]


def test_a_job_that_is_released_says_again_why_it_waits() -> None:
    """In the pause before a retry, and an array with as many elements as may run at once."""
    d = Driver()
    d.join()
    failed = d.submit(with_changes(spec(), retry=Retry(3)))
    d.start(failed)
    d.exit(failed, exit_code=1)
    array = d.submit(with_changes(spec(), array=Array(3, 1)))
    for job, reason in ((failed, Reason.RETRYING), (array, Reason.ARRAY_LIMIT)):
        assert d.job(job).reason is reason
        d.step(HoldRequested(job))
        assert d.job(job).reason is Reason.HELD
        d.step(ReleaseRequested(job))
        assert d.job(job).reason is reason


def test_a_held_job_blocks_nobody() -> None:
    d = cluster()
    blocker, head, behind = running(d), d.submit(), d.submit()
    d.step(HoldRequested(head))
    d.exit(blocker)
    assert d.states(head, behind) == [JobState.QUEUED, JobState.STARTING]


def test_holding_a_trial_gives_up_what_is_kept_for_it() -> None:
    d = cluster()
    job, trial = preempted(d)
    assert d.earmark(trial) is not None
    held = d.step(HoldRequested(trial))
    assert kinds(held, trial) == [EventKind.HELD, EventKind.EARMARK_DROPPED]
    assert not d.state.earmarks.rows
    d.exit(job, yielded=True)
    assert d.states(job, trial) == [JobState.STARTING, JobState.QUEUED], "what its victim left is anybody's"


def test_only_a_queued_job_can_be_held() -> None:
    d = cluster()
    job = running(d)
    assert "suspend" in str(refused(d, HoldRequested(job)))
    assert d.reply(ReleaseRequested(job)) == Accepted(job), "it is not held"
    aside = d.submit()
    d.exit(job)
    d.start(aside)
    d.step(SuspendRequested(aside))
    d.exit(aside, yielded=True)
    refused(d, HoldRequested(aside))


# ---- requeue -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
def test_a_requeued_job_leaves_and_runs_again(begun: bool) -> None:
    d = cluster()
    job = d.submit()
    if begun:
        d.start(job)
    told = d.step(RequeueRequested(job))
    assert [why for _, why in stopped(told.orders)] == [StopReason.REQUEUED]
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.REQUEUED)
    assert d.reply(RequeueRequested(job)) == Accepted(job)
    left = d.exit(job, yielded=True)
    assert orders_to_start(left) == [RunKey(job, 2)]
    assert d.job(job).preempted_for_trial == 0


def test_requeue_of_a_job_in_its_pause_tries_it_now() -> None:
    d = cluster()
    job = d.submit(with_changes(spec(), retry=Retry(1)))
    d.start(job)
    d.exit(job, exit_code=1)
    assert d.job(job).state is JobState.QUEUED
    retried = d.step(RequeueRequested(job))
    assert [event.kind for event in retried.log] == [EventKind.REQUEUE_REQUESTED, EventKind.PLACED]
    assert d.job(job).state is JobState.STARTING


def test_requeue_of_a_job_on_a_silent_node_waits_for_it() -> None:
    d = cluster()
    job = running(d)
    d.silence()
    d.step(RequeueRequested(job))
    assert d.job(job).state is JobState.UNREACHABLE
    d.join(capacity=SMALL)
    assert (d.job(job).state, d.job(job).reason) == (JobState.STOPPING, Reason.REQUEUED)


def test_what_cannot_be_requeued() -> None:
    d = cluster()
    aside = suspended(d)
    job = d.submit(with_changes(spec(), time_limit_us=5 * SECOND))
    queued = d.submit()
    refused(d, RequeueRequested(aside))
    refused(d, RequeueRequested(queued))
    d.start(job)
    d.step(after=5)
    assert "time limit" in str(refused(d, RequeueRequested(job)))
    d.exit(job, yielded=True)
    assert d.job(job).state is JobState.TIMED_OUT


def test_a_preempted_job_on_a_silent_node_stays_preempted_when_it_is_requeued() -> None:
    d = cluster()
    job, trial = preempted(d)
    d.step(NodeSilent("n1"))
    assert d.reply(RequeueRequested(job)) == Accepted(job)
    assert (d.run(job).stop_reason, d.run(job).stop_for) == (StopReason.PREEMPTED, trial)


# ---- update --------------------------------------------------------------------------------------------------------------


def test_priority_moves_a_job_in_its_queue() -> None:
    d = cluster()
    blocker, first, second = running(d), d.submit(), d.submit()
    told = d.step(UpdateRequested(second, priority=1))
    assert [event.text for event in told.log] == ["priority 0 -> 1"]
    d.exit(blocker)
    assert d.states(first, second) == [JobState.QUEUED, JobState.STARTING]
    assert not d.step(UpdateRequested(second, priority=1)).log, "it has it already"


def test_a_run_whose_priority_falls_can_be_preempted_at_once() -> None:
    """The waiting trial is asked again."""
    d = cluster()
    job = d.submit(with_changes(spec(), priority=1))
    d.start(job)
    trial = d.trial()
    assert (d.job(job).state, d.job(trial).reason) == (JobState.RUNNING, Reason.NOTHING_TO_PREEMPT)
    d.step(UpdateRequested(job, priority=0))
    assert (d.job(job).state, d.job(job).cause_job) == (JobState.STOPPING, trial)


def test_a_limit_shorter_than_what_a_job_has_run_ends_it_at_once() -> None:
    d = cluster()
    job = running(d)
    d.step(after=100)
    told = d.step(UpdateRequested(job, time_limit_us=60 * SECOND))
    assert [why for _, why in stopped(told.orders)] == [StopReason.TIME_LIMIT]
    d.exit(job, yielded=True)
    assert (d.job(job).state, d.job(job).reason) == (JobState.TIMED_OUT, Reason.TIME_LIMIT)


def test_a_limit_shorter_than_what_a_queued_job_has_run_ends_it() -> None:
    d = cluster()
    job = running(d)
    d.step(after=30)
    d.trial()
    d.exit(job, yielded=True)
    assert d.job(job).state is JobState.QUEUED
    d.step(UpdateRequested(job, time_limit_us=31 * SECOND))
    assert d.job(job).state is JobState.QUEUED
    d.step(UpdateRequested(job, time_limit_us=30 * SECOND))
    assert d.job(job).state is JobState.TIMED_OUT


def test_a_run_that_leaves_as_its_time_is_over_is_given_no_more() -> None:
    """It would be told that it has a longer limit, and end by that one all the same."""
    d = cluster()
    array = d.submit(with_changes(spec(), array=Array(2), time_limit_us=5 * SECOND))
    (job,) = d.state.elements_of[array]
    d.start(job)
    d.step(after=5)
    assert "the one that it has is over, and it leaves" in str(refused(d, UpdateRequested(job, time_limit_us=60 * SECOND)))
    assert d.reply(UpdateRequested(job, priority=3, time_limit_us=5 * SECOND)) == Accepted(job)
    assert d.reply(UpdateRequested(array, time_limit_us=60 * SECOND)) == Accepted(array)
    assert (d.job(job).time_limit_us, d.job(array).time_limit_us) == (5 * SECOND, 60 * SECOND)
    d.exit(job, yielded=True)
    assert d.job(job).state is JobState.TIMED_OUT


def test_a_longer_limit_and_none_at_all() -> None:
    d = cluster()
    job = d.submit(with_changes(spec(), time_limit_us=60 * SECOND))
    d.start(job)
    began = d.now
    d.step(UpdateRequested(job, time_limit_us=100 * SECOND), after=10)
    assert d.job(job).limit_us == began + 100 * SECOND
    d.step(UpdateRequested(job, time_limit_us=0))
    d.step(after=3600)
    assert (d.job(job).state, d.job(job).limit_us) == (JobState.RUNNING, None)


def test_a_limit_given_to_a_run_that_leaves_does_not_change_why_it_leaves() -> None:
    d = cluster()
    job, trial = preempted(d)
    d.silence()
    d.step(UpdateRequested(job, time_limit_us=SECOND), after=60)
    assert (d.run(job).stop_reason, d.run(job).stop_for) == (StopReason.PREEMPTED, trial)
    assert d.node().state is NodeState.SILENT
