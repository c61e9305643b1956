"""A job that is set aside: nothing is done for it until somebody releases it."""

from random import Random

from scheduler_service.core.allocation.transitions import shown_state
from scheduler_service.core.enact import enact
from scheduler_service.core.engine import step
from scheduler_service.core.messages import (
    EVENTS_ONLY,
    Part,
    Place,
    ReleaseRequested,
    ReportRefused,
    SetAside,
    Spot,
    Submitted,
    beneficiaries,
)
from scheduler_service.core.model import EventKind, JobState, Reason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.queue_keys import Deadline, Lane
from tests.core.driver import Driver, kinds, spec

WHY = "the database refused it"


def test_a_queued_job_is_held_with_the_reason_and_returns_to_its_place() -> None:
    d = Driver()
    one, two = d.submit(), d.submit()
    taken = d.step(SetAside(one, WHY))
    assert kinds(taken, one) == [EventKind.SET_ASIDE]
    assert (d.job(one).held, d.job(one).reason, d.job(one).detail) == (True, Reason.HELD, WHY)
    assert not d.step(SetAside(one, "again")).log, "once is enough"
    d.join()
    assert d.states(one, two) == [JobState.QUEUED, JobState.STARTING]
    d.step(ReleaseRequested(one))
    assert d.job(one).state is JobState.STARTING
    assert not d.job(one).held
    assert not d.job(one).set_aside


def test_a_running_job_goes_on_without_deadlines_until_it_is_released() -> None:
    d = Driver()
    d.join()
    job = d.submit(with_changes(spec(), time_limit_us=10 * SECOND))
    d.start(job)
    assert Deadline.TIME_LIMIT in [kind for _, kind, _ in d.state.deadlines]
    d.step(SetAside(job, WHY))
    assert not d.state.deadlines
    d.step(after=60)
    assert d.job(job).state is JobState.RUNNING
    d.step(ReleaseRequested(job))
    assert d.job(job).state is JobState.STOPPING
    assert d.job(job).reason is Reason.TIME_LIMIT


def test_no_plan_is_carried_out_for_it() -> None:
    d = Driver()
    job = d.submit()
    d.step(SetAside(job, WHY))
    d.join()
    plan = (Place(job, (Spot(1, (0,)),)),)
    assert beneficiaries(plan) == (job,)
    assert enact(d.state, plan, d.now) == f"job {job} is set aside until somebody releases it"
    d.state.undo()


def test_a_report_that_is_skipped_counts_and_its_job_is_set_aside() -> None:
    d = Driver()
    d.join()
    job = d.submit()
    report = d.started(job)
    d.step(ReportRefused(report, WHY))
    assert d.node().sequence == report.sequence
    assert d.job(job).set_aside == WHY
    assert shown_state(d.state, d.job(job)) is JobState.STARTING
    d.start(job)
    d.exit(job)
    assert d.job(job).state is JobState.SUCCEEDED


def test_a_step_in_part_leaves_the_rest_to_be_done() -> None:
    """All parts together do what the whole step would have done."""
    d = Driver()
    d.join()
    first, second = (d.submit(with_changes(spec(), time_limit_us=10 * SECOND)) for _ in range(2))
    d.start(first, second)
    d.now += 60 * SECOND
    due = [deadline for deadline in d.state.deadlines if deadline[0] <= d.now]
    assert len(due) == 2
    d.step_part(EVENTS_ONLY)
    assert d.states(first, second) == [JobState.RUNNING] * 2
    d.step_part(Part(deadlines=(due[1],), resumes=(), plans=0))
    assert d.states(first, second) == [JobState.RUNNING, JobState.STOPPING]
    d.step()
    assert d.states(first, second) == [JobState.STOPPING] * 2


def test_plans_are_carried_out_one_at_a_time() -> None:
    d = Driver()
    jobs = [d.submit() for _ in range(3)]
    d.settles = False
    d.step_part(EVENTS_ONLY, d.seen("n1"))
    assert d.states(*jobs) == [JobState.QUEUED] * 3
    for count in range(1, 4):
        taken = d.step_part(Part((), (), 1))
        assert len(taken.enacted) == 1
        assert d.states(*jobs).count(JobState.STARTING) == count
    assert not d.step_part(Part((), (), 1)).enacted
    assert not d.state.pending.policies


def test_a_number_that_another_job_gets_after_an_undo_is_in_the_queue_of_that_job_alone() -> None:
    """As after a commit that was refused: the next submit gets the same number, and may be of the other class."""
    d = Driver()
    for trial in (True, False):
        step(d.state, [Submitted("ann", "", spec(trial=trial))], d.now, Random(0), d.policy)
        kinds = {lane: d.state.kinds_waiting(lane) for lane in d.state.site_queues}
        waiting = {lane: [key[-1] for queue in by_kind.values() for key in queue] for lane, by_kind in kinds.items()}
        assert waiting == {Lane.TRIAL: [1] if trial else [], Lane.BEST_EFFORT: [] if trial else [1]}
        d.state.undo()
