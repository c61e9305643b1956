"""FitGpp as a policy: who is served, who waits, and for whom."""

import pytest

from scheduler_service.core.messages import NodeSilent, Submitted
from scheduler_service.core.model import EventKind, JobState, Reason, RunKey
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import DEFAULTS
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, kinds, orders_to_stop, spec
from tests.policies.made import fitgpp

ORDINARY = PreemptionSettings()


def full(best_effort: int = 4, settings: PreemptionSettings = ORDINARY, devices: int = 2) -> tuple[Driver, list[int]]:
    """One node of 8 devices held by best-effort runs."""
    d = Driver(fitgpp(settings), cap=settings.cap)
    d.join()
    jobs = [d.submit(devices=devices) for _ in range(best_effort)]
    d.start(*jobs)
    return d, jobs


def test_a_trial_that_fits_starts_at_once_and_first() -> None:
    d, jobs = full()
    waiting = d.submit(devices=2)
    assert d.job(waiting).state is JobState.QUEUED
    d.exit(jobs[0])
    assert d.job(waiting).state is JobState.STARTING
    blocked = d.submit(devices=4)
    d.join("n2", Vector(8_000, 8_192, 2))
    trial = d.trial(2)
    assert d.states(blocked, trial) == [JobState.QUEUED, JobState.STARTING]


def test_a_trial_that_fits_nowhere_has_one_told_to_leave() -> None:
    d, jobs = full()
    trial = d.trial(2)
    assert d.states(*jobs, trial) == [JobState.RUNNING] * 3 + [JobState.STOPPING, JobState.QUEUED]
    assert (d.job(trial).reason, d.job(jobs[3]).cause_job) == (Reason.WAITING_FOR_VICTIMS, trial)
    d.exit(jobs[3], yielded=True)
    assert d.states(jobs[3], trial) == [JobState.QUEUED, JobState.STARTING]


def test_the_story_tells_why() -> None:
    d, jobs = full()
    trial = d.state.cluster.next_job
    step = d.step(Submitted("ann", "", spec(2, trial=True)))
    assert kinds(step, trial) == [EventKind.SUBMITTED, EventKind.PREEMPTING]
    assert kinds(step, jobs[3]) == [EventKind.PREEMPTED]
    decisions = {event.decision for event in step.log if event.decision}
    assert len(decisions) == 1
    assert orders_to_stop(step) == [RunKey(jobs[3], 1)]


def test_each_waiting_trial_has_its_own_victims_and_earmark() -> None:
    d, jobs = full()
    trials = [d.trial(2), d.trial(2), d.trial(2)]
    assert d.states(*jobs) == [JobState.RUNNING] + [JobState.STOPPING] * 3
    assert len(d.state.earmarks.rows) == 3
    d.exit(jobs[1], yielded=True)  # the victim of the last of them
    assert [d.job(t).state for t in trials] == [JobState.QUEUED, JobState.QUEUED, JobState.STARTING]


def test_a_trial_behind_one_that_waits_with_an_earmark_is_served() -> None:
    d, jobs = full(best_effort=2, devices=3)
    large, small = d.trial(5), d.trial(1)
    assert d.states(*jobs) == [JobState.STOPPING] * 2, "what was free is kept for the first"
    assert d.states(large, small) == [JobState.QUEUED] * 2
    d.join("n2", Vector(8_000, 8_192, 1))
    assert d.job(small).state is JobState.STARTING
    assert d.job(large).reason is Reason.WAITING_FOR_VICTIMS


def test_one_trial_in_flight() -> None:
    d, jobs = full(settings=PreemptionSettings(trials_in_flight=1))
    first, second = d.trial(2), d.trial(2)
    assert d.states(*jobs) == [JobState.RUNNING] * 3 + [JobState.STOPPING]
    assert d.job(second).reason is Reason.NO_ROOM
    d.exit(jobs[3], yielded=True)
    assert d.job(first).state is JobState.STARTING
    assert d.job(jobs[2]).state is JobState.STOPPING
    assert d.job(second).reason is Reason.WAITING_FOR_VICTIMS


def test_best_effort_jobs_are_held_back_while_nothing_can_be_preempted_for_a_trial() -> None:
    d = Driver(fitgpp(PreemptionSettings(cap=0)))
    d.join()
    running = [d.submit(devices=4), d.submit(devices=2)]
    trial = d.trial(4)
    small = d.submit(devices=1)
    assert d.job(trial).reason is Reason.NOTHING_TO_PREEMPT
    assert d.job(small).state is JobState.QUEUED, "it fits, and would take what the trial needs"
    d.exit(running[1])
    assert d.states(trial, small) == [JobState.STARTING, JobState.QUEUED]
    d.exit(trial)
    assert d.job(small).state is JobState.STARTING


def test_best_effort_jobs_are_served_while_trials_wait_for_their_victims() -> None:
    d, jobs = full(best_effort=1, devices=6)
    trial = d.trial(4, cpu=1000)
    assert d.job(jobs[0]).state is JobState.STOPPING
    d.join("n2", Vector(8_000, 8_192, 2))
    small = d.submit(devices=2)
    assert d.states(trial, small) == [JobState.QUEUED, JobState.STARTING]


def test_no_job_is_preempted_more_often_than_the_cap() -> None:
    d, jobs = full(best_effort=1, devices=8, settings=PreemptionSettings(cap=2))
    for count in (1, 2):
        trial = d.trial(8)
        assert d.job(jobs[0]).preempted_for_trial == count
        d.exit(jobs[0], yielded=True)
        d.exit(trial)
        d.start(jobs[0])
    trial = d.trial(8)
    assert (d.job(jobs[0]).state, d.job(trial).reason) == (JobState.RUNNING, Reason.NOTHING_TO_PREEMPT)


def test_trials_are_never_preempted() -> None:
    d = Driver(fitgpp(PreemptionSettings()))
    d.join()
    first = d.trial(8)
    second = d.trial(8)
    assert d.states(first, second) == [JobState.STARTING, JobState.QUEUED]
    assert d.job(second).reason is Reason.NOTHING_TO_PREEMPT


def test_a_trial_too_large_for_any_node_blocks_nobody() -> None:
    d = Driver(fitgpp(PreemptionSettings()))
    large, trial, best_effort = d.trial(9), d.trial(1), d.submit()
    d.join()
    assert d.states(large, trial, best_effort) == [JobState.QUEUED, JobState.STARTING, JobState.STARTING]
    assert d.job(large).reason is Reason.TOO_LARGE


def test_several_go_where_none_suffices_alone() -> None:
    d, jobs = full()
    trial = d.trial(5)
    leaving = [job for job in jobs if d.job(job).state is JobState.STOPPING]
    assert len(leaving) == 3
    for job in leaving:
        assert d.job(trial).state is JobState.QUEUED
        d.exit(job, yielded=True)
    assert d.job(trial).state is JobState.STARTING


@pytest.mark.parametrize("in_flight", [None, 1])
def test_a_trial_with_an_earmark_is_not_held_up_by_one_before_it(in_flight: int | None) -> None:
    """A trial comes back to the top of the queue and waits for what is kept for a later one."""
    d = Driver(fitgpp(PreemptionSettings(trials_in_flight=in_flight)), cap=1)
    d.join("n1")
    d.join("n2")
    early, best_effort = d.trial(8), d.submit(devices=8)
    d.start(early, best_effort)
    late = d.trial(8)
    assert d.job(best_effort).state is JobState.STOPPING
    d.step(d.exited(early, yielded=True), NodeSilent("n1"))
    assert d.states(early, late) == [JobState.QUEUED] * 2
    d.exit(best_effort, yielded=True)
    assert d.states(early, late) == [JobState.QUEUED, JobState.STARTING]


def test_a_trial_that_waits_in_vain_is_told_who_is_spared_and_why() -> None:
    d = Driver(fitgpp(PreemptionSettings(cap=1)), DEFAULTS._replace(min_run_us=30 * SECOND))
    d.join("n1")
    capped = d.submit(devices=8)
    d.start(capped)
    d.step(after=31)
    first = d.trial(8)
    d.exit(capped, yielded=True)
    d.start(first)
    d.exit(first)
    d.start(capped)
    for name in ("n2", "n3", "n4"):
        d.join(name)
    trial, high = d.trial(8), d.submit(with_changes(spec(8), priority=5))
    d.start(trial, high)
    d.step(after=31)
    guarded = d.submit(devices=8)
    d.start(guarded)
    waits = d.job(d.trial(8))
    assert waits.reason is Reason.NOTHING_TO_PREEMPT
    assert waits.detail == (
        "every run that may be preempted, together, would not make room: "
        f"job {capped} was preempted for trials as often as it may be (1; fitgpp_cap is 1); job {trial} is a trial, too; "
        f"job {high} has too high a priority to make room for job {waits.id}; "
        f"job {guarded} has not run for its guaranteed time yet (min_run)"
    )
