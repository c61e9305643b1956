"""The time limits of a site: a default for jobs that name none, and the longest that a job may have, by class."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.messages import Accepted, Submitted, UpdateRequested
from scheduler_service.core.model import Array, JobClass, JobState
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import DEFAULTS
from scheduler_service.core.model.values import SECOND
from tests.core.driver import Driver, spec

LIMITS = st.sampled_from((0, 10, 60, 600))


def site(default: tuple[int, int] = (0, 0), longest: tuple[int, int] = (0, 0)) -> Driver:
    """Of trials, and of best-effort jobs, in seconds."""
    settings = DEFAULTS._replace(
        default_time_limits_us=(default[0] * SECOND, default[1] * SECOND),
        longest_time_limits_us=(longest[0] * SECOND, longest[1] * SECOND),
    )
    d = Driver(settings=settings)
    d.join()
    return d


@given(st.booleans(), LIMITS, LIMITS, LIMITS, LIMITS)
def test_no_job_has_a_longer_limit_than_its_class_may_have(
    trial: bool, default: int, longest: int, asked: int, later: int
) -> None:
    place = 0 if trial else 1
    defaults, most = [0, 0], [0, 0]
    defaults[place], most[place] = min(default, longest) if longest else default, longest
    d = site((defaults[0], defaults[1]), (most[0], most[1]))
    answer = d.reply(Submitted("ann", "", with_changes(spec(trial=trial), time_limit_us=asked * SECOND)))
    if longest and asked > longest:
        assert isinstance(answer, FailedPrecondition)
        assert answer.reason == "TIME_LIMIT_TOO_LONG"
        return
    assert isinstance(answer, Accepted)
    has = d.job(answer.job_id).time_limit_us // SECOND
    assert has == (asked or defaults[place] or longest)
    answer = d.reply(UpdateRequested(answer.job_id, time_limit_us=later * SECOND))
    refused = bool(longest) and later != has and not 0 < later <= longest
    assert isinstance(answer, FailedPrecondition) is refused
    assert d.job(1).time_limit_us // SECOND == (has if refused else later)


def test_the_error_names_the_limit_and_the_setting() -> None:
    d = site(longest=(0, 3600))
    answer = d.reply(Submitted("ann", "", with_changes(spec(), time_limit_us=7200 * SECOND)))
    assert str(answer) == (
        "a time limit of 7200 s is too long: best-effort jobs of this site may run for 3600 s at most (longest_time_limit in "
        "the scheduler's configuration); ask for 3600 s or less, and have a longer job save its work and be submitted again"
    )


def test_a_class_without_limits_has_none() -> None:
    d = site(default=(60, 0), longest=(600, 0))
    assert d.job(d.submit()).time_limit_us == 0
    assert d.job(d.trial()).time_limit_us == 60 * SECOND


def test_elements_have_the_limit_of_their_array_and_may_not_have_a_longer_one() -> None:
    d = site(default=(0, 60), longest=(0, 600))
    d.submit(with_changes(spec(), array=Array(2)))
    assert {job.time_limit_us for job in d.state.jobs.rows.values()} == {60 * SECOND}
    answer = d.reply(UpdateRequested(2, time_limit_us=601 * SECOND))
    assert isinstance(answer, FailedPrecondition)
    assert "longest_time_limit" in str(answer)


def test_the_same_submit_is_the_same_job_though_it_got_the_default() -> None:
    d = site(default=(0, 60))
    first = d.submit(request_id="r")
    assert d.submit(request_id="r") == first


@pytest.mark.parametrize("job_class", JobClass)
def test_a_job_with_the_default_limit_is_backfilled_and_timed_out_by_it(job_class: JobClass) -> None:
    d = site(default=(60, 60))
    job = d.submit(with_changes(spec(), job_class=job_class))
    d.start(job)
    d.step(after=60)
    assert d.job(job).state is JobState.STOPPING
