"""Empty queues, jobs that no slot can run, extreme times, ties, and problems that are refused."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.policies.allox.matching.problem import LONGEST, NOWHERE, Problem
from scheduler_service.policies.allox.matching.solve import solve
from tests.policies.matching.problems import DAY, assert_right, problem, problems


@pytest.mark.parametrize("free_at", [[], [[]], [[0], []], [[5, 3], [2]]])
def test_no_jobs(free_at: list[list[int]]) -> None:
    of = problem([], free_at)
    assert_right(of, solve(of))
    assert solve(of).cost == 0


@pytest.mark.parametrize("free_at", [[], [[]], [[], []]])
def test_no_slots(free_at: list[list[int]]) -> None:
    of = problem([[3] * len(free_at), [5] * len(free_at)], free_at)
    assert_right(of, solve(of))
    assert solve(of).kind.tolist() == [NOWHERE, NOWHERE]


def test_a_job_that_no_slot_can_run_is_placed_nowhere() -> None:
    of = problem([[None, 4, None], [2, 2, None], [None, None, 9]], [[0], [], [7]])
    matching = solve(of)
    assert_right(of, matching)
    assert matching.kind.tolist() == [NOWHERE, 0, 2]
    assert matching.cost == 2 + 16


def test_slots_keep_the_numbers_that_they_were_given_with() -> None:
    of = problem([[6], [5]], [[9, 3, 5]])
    assert solve(of).slot.tolist() == [2, 1]


def test_one_kind_serves_the_shortest_job_first() -> None:
    of = problem([[5], [1], [3], [4], [2]], [[0]])
    matching = solve(of)
    assert matching.position.tolist() == [1, 5, 3, 2, 4]
    assert matching.start.tolist() == [10, 0, 3, 6, 1]


def test_jobs_of_a_microsecond_and_of_days() -> None:
    of = problem([[1, 10 * DAY], [10 * DAY, 1], [10 * DAY, 10 * DAY - 1], [1, 1], [2, 1]], [[0, DAY], [DAY]])
    assert_right(of, solve(of))


def test_a_difference_of_a_microsecond_decides() -> None:
    times = [[10 * DAY, 10 * DAY - 1], [10 * DAY, 10 * DAY - 2]]
    matching = solve(problem(times, [[0], [0]]))
    assert matching.kind.tolist() == [0, 1]


def test_times_may_be_before_zero() -> None:
    of = problem([[3], [4]], [[-100, -98]], [-200, -300])
    assert_right(of, solve(of))


def test_of_equal_jobs_the_first_to_arrive_starts_first() -> None:
    of = problem([[7]] * 6, [[0, 2, 40]], [5, 3, 4, 3, 1, 2])
    starts = solve(of).start
    assert np.argsort(starts, kind="stable").tolist() == [4, 5, 1, 3, 2, 0]


@given(st.integers(0, 2**32))
def test_jobs_of_equal_time_start_in_turn_on_each_kind(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = rng.integers(1, 4, (40, 2))
    of = Problem(times, (rng.integers(0, 9, 3), rng.integers(0, 9, 5)), rng.permutation(40))
    matching = solve(of)
    assert_right(of, matching)
    for kind in (0, 1):
        for time in (1, 2, 3):
            equal = np.flatnonzero((matching.kind == kind) & (times[:, kind] == time))
            assert (np.diff(matching.start[equal[np.argsort(of.arrived[equal])]]) >= 0).all()


@given(problems())
def test_the_matching_is_a_function_of_the_problem(of: Problem) -> None:
    one, other = solve(of), solve(Problem(of.times.copy(), of.free_at, of.arrived.copy()))
    assert [np.array(part).tolist() for part in one[:-1]] == [np.array(part).tolist() for part in other[:-1]]
    assert [prices.tolist() for prices in one.prices] == [prices.tolist() for prices in other.prices]


@given(problems(), st.integers(-DAY, 1_000 * DAY))
def test_only_differences_of_time_matter(of: Problem, later: int) -> None:
    moved = Problem(of.times, tuple(slots + later for slots in of.free_at), of.arrived + later)
    assert solve(moved).cost == solve(of).cost
    np.testing.assert_array_equal(solve(moved).kind, solve(of).kind)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (problem([[3, 0]], [[0], [0]]), "job 0 takes 0 us on kind 1; a time is at least 1 us"),
        (problem([[3], [-5]], [[0]]), "job 1 takes -5 us on kind 0"),
        (Problem(np.ones((2, 1), np.int64), (), np.zeros(2, np.int64)), "times have the shape (2, 1); expected (2, 0)"),
        (Problem(np.ones(2, np.int64), (np.zeros(1, np.int64),), np.zeros(2, np.int64)), "expected (2, 1): jobs x kinds"),
        (problem([[LONGEST // 2], [1]], [[0]]), f"2 jobs of up to {LONGEST // 2} us"),
        (problem([[1]], [[0, LONGEST]]), f"free at up to {LONGEST} us"),
    ],
)
def test_what_is_out_of_range_is_refused(of: Problem, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        solve(of)


@pytest.mark.parametrize("jobs", [1, 2, 6])
def test_the_longest_times_do_not_overflow(jobs: int) -> None:
    longest = (LONGEST - 4) // jobs
    times = np.random.default_rng(3).integers(longest // 2, longest + 1, (jobs, 2))
    times[0, 0] = longest
    of = Problem(times, (np.zeros(1, np.int64), np.array([0, 3])), np.zeros(jobs, np.int64))
    assert_right(of, solve(of))


def test_an_earlier_matching_of_another_number_of_jobs_is_refused() -> None:
    of = problem([[1], [2]], [[0]])
    with pytest.raises(ValueError, match="2 kinds and 1 positions are known of 2 jobs"):
        solve(of, (np.array([0, 0]), np.array([1])))
