"""Arrays: one row until their elements start; each element begins once; the array ends when all have."""

from typing import Any

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import (
    Accepted,
    HoldRequested,
    ReleaseRequested,
    Submitted,
    SuspendRequested,
    UpdateRequested,
)
from scheduler_service.core.model import (
    Array,
    Dependency,
    DependencyKind,
    EventKind,
    JobSpec,
    JobState,
    Reason,
    Retry,
    RunPhase,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.state.queue_keys import own_lane
from scheduler_service.policies.options import PreemptionSettings
from tests.core.driver import Driver, kinds, orders_to_start, spec
from tests.core.test_gangs import gang
from tests.policies.made import fitgpp

TWO = Vector(4_000, 8_192, 2)


def array(size: int, at_once: int = 0, **more: Any) -> JobSpec:
    return with_changes(spec(), array=Array(size, at_once), **more)


def cluster(capacity: Vector = TWO) -> Driver:
    d = Driver(fitgpp(PreemptionSettings()))
    d.join(capacity=capacity)
    return d


def elements(d: Driver, job: int) -> list[int]:
    return sorted(d.state.elements_of.get(job, ()))


def counts(d: Driver, job: int) -> tuple[int, ...]:
    found = d.job(job).elements
    assert found is not None
    return tuple(found)


def test_an_array_of_ten_thousand_costs_one_row_at_submit() -> None:
    d = Driver()
    changes = d.step(Submitted("ann", "", array(10_000))).changes
    assert [change.table for change in changes] == ["cluster", "job"]
    assert len(d.state.queue("", own_lane(d.job(1)))) == 1


def test_elements_start_as_there_is_room_and_each_begins_once() -> None:
    d = cluster()
    job = d.submit(array(5))
    begun: dict[int, int] = {}
    while d.job(job).ended_us is None:
        for element in elements(d, job):
            begun.setdefault(element, d.job(element).array_index)
        assert len(elements(d, job)) <= 2
        first = elements(d, job)[0]
        d.start(first)
        d.exit(first)
    assert sorted(begun.values()) == [0, 1, 2, 3, 4]
    assert (d.job(job).state, counts(d, job)) == (JobState.SUCCEEDED, (5, 0, 5, 0))


def test_an_element_is_a_job_of_its_own() -> None:
    d = cluster()
    job = d.submit(array(2, retry=Retry(1), time_limit_us=60 * SECOND, priority=3))
    element = d.job(elements(d, job)[1])
    assert (element.array_job, element.array_index, element.priority, element.time_limit_us) == (job, 1, 3, 60 * SECOND)
    assert (element.spec.array, element.spec.retry) == (None, Retry(1))
    d.start(element.id)
    d.step(SuspendRequested(element.id))
    d.exit(element.id, yielded=True)
    assert d.job(element.id).state is JobState.SUSPENDED


def test_no_more_than_at_once_are_live_whatever_room_there_is() -> None:
    d = cluster(Vector(32_000, 65_536, 8))
    job = d.submit(array(5, at_once=2))
    behind = d.submit()
    assert (len(elements(d, job)), d.job(job).reason) == (2, Reason.ARRAY_LIMIT)
    assert d.job(behind).state is JobState.STARTING, "an array at its limit blocks nobody"
    one = elements(d, job)[0]
    d.exit(one, exit_code=0)
    assert (counts(d, job), d.job(job).reason) == ((3, 2, 1, 0), Reason.ARRAY_LIMIT)


def test_the_last_element_begun_makes_the_array_run() -> None:
    d = cluster()
    job = d.submit(array(2))
    assert (d.job(job).state, d.job(job).reason, d.job(job).started_us) == (JobState.RUNNING, Reason.NONE, d.now)


def test_a_preempted_element_returns_before_those_that_have_not_begun() -> None:
    d = cluster()
    job = d.submit(array(4))
    first, second = elements(d, job)
    d.start(first, second)
    trial = d.trial(1)
    assert d.job(second).state is JobState.STOPPING
    d.exit(second, yielded=True)
    assert (d.job(trial).state, counts(d, job)) == (JobState.STARTING, (2, 2, 0, 0))
    back = d.exit(trial)
    assert [key.job_id for key in orders_to_start(back)] == [second]


def test_a_failed_element_fails_the_array_when_all_have_ended() -> None:
    d = cluster()
    job = d.submit(array(3))
    for outcome in ({"exit_code": 1}, {}, {}):
        d.exit(elements(d, job)[0], **outcome)
    assert (d.job(job).state, d.job(job).reason) == (JobState.FAILED, Reason.ELEMENTS_FAILED)
    assert d.job(job).detail == "1 of 3 elements did not succeed"


def test_cancel_of_an_array_ends_what_waits_at_once_and_what_runs_when_it_has_left() -> None:
    d = cluster()
    job = d.submit(array(10))
    first, second = elements(d, job)
    d.start(first)
    d.cancel(job)
    assert (d.job(job).state, d.states(first, second)) == (JobState.STOPPING, [JobState.STOPPING] * 2)
    d.exit(first, yielded=True)
    last = d.exit(second, yielded=True)
    assert d.states(job, first, second) == [JobState.CANCELLED] * 3
    assert kinds(last, job) == [EventKind.ENDED]
    assert counts(d, job) == (2, 0, 0, 2)


def test_cancel_of_an_array_whose_elements_all_wait() -> None:
    d = cluster()
    job = d.submit(array(2))
    d.step(*(d.exited(element, yielded=True) for element in elements(d, job)))
    assert all(d.job(element).state is JobState.QUEUED for element in elements(d, job))
    d.cancel(job)
    assert d.job(job).state is JobState.CANCELLED


def test_cancel_of_a_trial_array_gives_up_what_is_kept_for_it() -> None:
    d = cluster()
    best_effort = d.submit(spec())
    d.start(best_effort)
    job = d.submit(with_changes(spec(trial=True), array=Array(3)))
    assert counts(d, job) == (1, 1, 0, 0)
    assert d.earmark(job) is not None
    d.cancel(job)
    assert not d.state.earmarks.rows


def test_a_held_array_begins_no_more_elements_and_those_that_run_go_on() -> None:
    d = cluster()
    job = d.submit(array(4))
    d.step(HoldRequested(job))
    first = elements(d, job)[0]
    d.exit(first)
    assert (counts(d, job), d.job(job).reason) == ((2, 1, 1, 0), Reason.HELD)
    d.step(ReleaseRequested(job))
    assert counts(d, job) == (3, 2, 1, 0)


def test_updates_reach_the_elements_that_are_live_and_those_to_come() -> None:
    d = cluster()
    job = d.submit(array(4))
    d.step(UpdateRequested(job, priority=5, time_limit_us=60 * SECOND))
    d.exit(elements(d, job)[0])
    assert [(d.job(e).priority, d.job(e).time_limit_us) for e in elements(d, job)] == [(5, 60 * SECOND)] * 2


def test_an_array_that_has_begun_takes_no_other_dependencies() -> None:
    """It would end with them while its elements run."""
    d = cluster()
    other = d.submit(spec(devices=2))
    waiting, begun = d.submit(array(2)), d.submit(array(4))
    d.exit(other)
    d.exit(elements(d, waiting)[0])
    d.exit(elements(d, waiting)[0])
    late = d.submit()
    assert counts(d, begun)[0] == 2
    refused = d.reply(UpdateRequested(begun, dependencies=(Dependency(late, DependencyKind.AFTER_OK),)))
    assert isinstance(refused, FailedPrecondition)
    assert d.reply(UpdateRequested(late, dependencies=(Dependency(begun, DependencyKind.AFTER_OK),))) == Accepted(late)


def test_an_array_of_gangs() -> None:
    d = cluster()
    pair = d.submit(gang(2, array=Array(2)))
    first = elements(d, pair)[0]
    assert [run.phase for run in d.state.runs_of(first)] == [RunPhase.STARTING] * 2
    for task in range(2):
        d.step(d.ready(first, task))
    for task in range(2):
        d.step(d.started(first, task))
        d.step(d.exited(first, task))
    assert counts(d, pair) == (2, 1, 1, 0)


def test_the_launch_of_an_element_has_nothing_to_say_of_configurations() -> None:
    d = Driver()
    d.join()
    told = d.step(Submitted("ann", "", array(2)))
    assert [line.text for line in told.log if line.kind is EventKind.PLACED] == ["", ""]
