"""The arithmetic of estimates: lines through samples, means by errors, regression (AlloX, section 4.1)."""

from itertools import pairwise
from math import isclose, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.model import Configuration, Job, JobSpec
from scheduler_service.core.model.estimates import Estimate, Reading, Source
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.core.operations.estimators import (
    SAMPLE_ERROR,
    Guess,
    combine_estimates,
    combine_guesses,
    expected_us,
    extrapolate,
    is_impossible,
    mean,
    regression,
    weights,
)

times = st.floats(1, 1e12)
errors = st.floats(1e-3, 1e12)
guesses = st.lists(st.builds(Guess, times, errors), min_size=1, max_size=6)


# ---- samples -------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 10**5))
def test_a_program_of_equal_steps_is_estimated_exactly(start: int, each: int, first: int, more: int, left: int) -> None:
    second = first + more
    total = second + left
    readings = (Reading(steps, start + each * steps) for steps in (first, second))
    guess = extrapolate(*readings, total)
    assert guess is not None
    assert isclose(guess.time, start + each * total, rel_tol=1e-9, abs_tol=1)
    assert isclose(guess.error, SAMPLE_ERROR * guess.time)


def test_a_first_step_that_is_faster_than_others_gives_no_negative_start() -> None:
    guess = extrapolate(Reading(1, 10), Reading(2, 110), 100)
    assert guess is not None
    assert guess.time == 100 * 100


def test_no_estimate_is_below_what_the_sample_has_taken() -> None:
    guess = extrapolate(Reading(1, 10), Reading(30, 300), 20)
    assert guess is not None
    assert guess.time == 300


def test_the_spread_of_steps_makes_the_error_larger() -> None:
    guess = extrapolate(Reading(1, 10), Reading(2, 20), 100, spread=0.5)
    assert guess is not None
    assert isclose(guess.error, guess.time * sqrt(SAMPLE_ERROR**2 + 0.25))


@pytest.mark.parametrize(
    ("second", "total"), [(Reading(5, 60), 9), (Reading(6, 50), 9), (Reading(4, 40), 9), (Reading(6, 60), 0)]
)
def test_points_that_do_not_follow_each_other_give_no_line(second: Reading, total: int) -> None:
    assert extrapolate(Reading(5, 50), second, total) is None


# ---- combination ---------------------------------------------------------------------------------------------------------


@given(st.lists(errors, min_size=1, max_size=6))
def test_weights_add_up_to_one_and_fall_with_the_error(given_errors: list[float]) -> None:
    found = weights(given_errors)
    assert isclose(sum(found), 1)
    assert all(weight >= 0 for weight in found)
    pairs = sorted(zip(given_errors, found, strict=True))
    assert all(more >= less - 1e-12 for (_, more), (_, less) in pairwise(pairs))


@given(guesses)
def test_a_combination_lies_between_its_guesses_and_is_no_less_certain_than_any(of: list[Guess]) -> None:
    found = combine_guesses(of)
    least, most = (pick(guess.time for guess in of) for pick in (min, max))
    assert least * (1 - 1e-9) <= found.time <= most * (1 + 1e-9)
    assert found.error <= min(guess.error for guess in of) * (1 + 1e-9)


@given(guesses, times)
def test_an_exact_guess_decides(of: list[Guess], time: float) -> None:
    assert combine_guesses([*of, Guess(time, 0.0)]) == Guess(time, 0.0)


@given(times, times, st.floats(1e-3, 1))
def test_a_guess_that_is_much_more_certain_dominates(sure: float, unsure: float, error: float) -> None:
    found = combine_guesses([Guess(sure, error), Guess(unsure, 1e6 * error)])
    assert abs(found.time - sure) <= abs(unsure - sure) * 1e-11 + sure * 1e-12


def test_two_guesses_by_hand() -> None:
    """Errors of 1 and 2: weights 4/5 and 1/5."""
    assert weights([1, 2]) == [0.8, 0.2]
    found = combine_guesses([Guess(10, 1), Guess(20, 2)])
    assert isclose(found.time, 12)
    assert isclose(found.error, sqrt(0.8))


# ---- past runs -----------------------------------------------------------------------------------------------------------

lines = st.tuples(st.floats(-100, 100), st.floats(-100, 100))
places = st.lists(st.integers(-1000, 1000), min_size=3, max_size=8, unique=True)


@given(lines, places, st.integers(-1000, 1000))
def test_points_on_a_line_are_continued_exactly(line: tuple[float, float], xs: list[int], at: int) -> None:
    offset, slope = line
    found = regression([(x, offset + slope * x) for x in xs], at)
    assert found is not None
    assert isclose(found.time, offset + slope * at, rel_tol=1e-6, abs_tol=1e-6 * (1 + max(map(abs, xs)) * abs(slope)))
    assert found.error <= 1e-3 * (1 + abs(slope) * (abs(at) + max(map(abs, xs))))


def test_a_regression_by_hand() -> None:
    """Points (0, 0), (1, 2), (2, 1): slope 1/2, mean (1, 1); squares of residuals 1/4, 1, 1/4."""
    found = regression([(0, 0), (1, 2), (2, 1)], 3)
    assert found is not None
    assert isclose(found.time, 2)
    assert isclose(found.error, sqrt(1.5 * (1 + 1 / 3 + 4 / 2)))


@pytest.mark.parametrize("points", [[], [(1, 1)], [(1, 1), (2, 2)], [(1, 1), (1, 2), (1, 3)]])
def test_too_few_sizes_give_no_line(points: list[tuple[float, float]]) -> None:
    assert regression(points, 5) is None


@given(st.lists(times, min_size=2, max_size=6))
def test_the_mean_of_past_times(past: list[float]) -> None:
    found = mean(past)
    assert found is not None
    assert min(past) * (1 - 1e-9) <= found.time <= max(past) * (1 + 1e-9)
    assert found.error <= (max(past) - min(past)) + found.time * 1e-9


def test_one_time_alone_says_nothing_of_the_spread() -> None:
    assert mean([5.0]) is None
    assert mean([]) is None


# ---- of a job ------------------------------------------------------------------------------------------------------------

SPEC = JobSpec(("true",), Vector(1, 1, 1), estimate_us=10 * SECOND, alternatives=(Configuration(Vector(4, 1, 0)),))
JOB = Job(1, SPEC, "ann", "", 0)


def test_the_users_word_holds_as_long_as_there_is_no_other() -> None:
    assert [expected_us(JOB, number) for number in (0, 1)] == [10 * SECOND, 0]
    sampled = with_changes(JOB, estimates=(Estimate(1, Source.SAMPLE, 30 * SECOND, 3 * SECOND),))
    assert [expected_us(sampled, number) for number in (0, 1)] == [10 * SECOND, 30 * SECOND]


def test_sources_are_combined_and_named() -> None:
    parts = (Estimate(0, Source.HISTORY, 20, 2), Estimate(0, Source.USER, 10, 1), Estimate(0, Source.SAMPLE, detail="none"))
    found = combine_estimates(parts)
    assert (found.time_us, found.error_us, found.sources) == (12, 1, (Source.USER, Source.HISTORY))
    assert combine_estimates(parts[2:]).sources == ()


def test_a_job_as_if_it_had_one_configuration_has_the_estimate_of_that() -> None:
    """What policies place is a view: the number of its configuration is that of the job's row."""
    job = with_changes(JOB, estimates=(Estimate(0, Source.HISTORY, 20, 2), Estimate(1, Source.SAMPLE, 50, 5, impossible=True)))
    views = job.in_each_configuration()
    assert [expected_us(view, view.configuration) for view in views] == [20, 50]
    assert [is_impossible(job, number) for number in (0, 1)] == [False, True]
