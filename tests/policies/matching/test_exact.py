"""The solver against every schedule there is, against the paper's cost matrix, and against its own proof."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.policies.allox.matching import flow as flow_module
from scheduler_service.policies.allox.matching import solve as solve_module
from scheduler_service.policies.allox.matching.certificate import lower_bound
from scheduler_service.policies.allox.matching.flow import flow
from scheduler_service.policies.allox.matching.greedy import greedy
from scheduler_service.policies.allox.matching.instance import FAR, instance
from scheduler_service.policies.allox.matching.plan import cost
from scheduler_service.policies.allox.matching.problem import NEVER, NOWHERE, Problem
from scheduler_service.policies.allox.matching.solve import solve
from tests.policies.matching.problems import DAY, assert_right, by_cost_matrix, exhaustive, problem, problems
from tests.thorough import examples


@settings(max_examples=examples(60))
@given(problems(jobs=5, kinds=2, slots=2))
def test_no_schedule_is_better(of: Problem) -> None:
    assert solve(of).cost == exhaustive(of)


@settings(max_examples=examples(100))
@given(problems())
def test_the_cost_matrix_of_the_paper_has_the_same_optimum(of: Problem) -> None:
    matching = solve(of)
    assert_right(of, matching)
    assert matching.cost == by_cost_matrix(of)


def random_problem(seed: int) -> Problem:
    """Up to 300 jobs on up to 200 slots, of which a few kinds, and equal times, and long queues."""
    rng = np.random.default_rng(seed)
    jobs, kinds = int(rng.integers(1, 300)), int(rng.integers(1, 6))
    longest = int(rng.choice([1, 3, 50, 10**6, 10 * 24 * 3_600 * 10**6]))
    times = rng.integers(1, longest + 1, (jobs, kinds))
    if rng.random() < 0.3:  # arrays: many jobs of equal times
        times = np.repeat(times[: jobs // 20 + 1], 20, axis=0)[:jobs]
    times[rng.random((jobs, kinds)) < rng.choice([0, 0.3, 0.7])] = NEVER
    latest = int(rng.choice([1, longest, 5 * longest]))
    free_at = tuple(rng.integers(0, latest + 1, rng.integers(0, rng.choice([4, 30, 200]))) for _ in range(kinds))
    return Problem(times, free_at, rng.integers(0, 100, jobs))


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32))
def test_large_problems_come_with_a_proof(seed: int) -> None:
    of = random_problem(seed)
    assert_right(of, solve(of))


def test_a_long_queue_is_solved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []
    optimum = solve_module._optimum
    monkeypatch.setattr(
        solve_module, "_optimum", lambda of, plan, reach: parts.append(len(plan.order)) or optimum(of, plan, reach)
    )
    rng = np.random.default_rng(2)
    times = rng.integers(1, 10**6, (400, 3))
    times[rng.random((400, 3)) < 0.2] = NEVER
    times[:, 0] = np.minimum(times[:, 0], 10**6)  # no job is refused everywhere
    of = Problem(times, (np.array([0]), np.array([50]), np.array([10**8])), rng.integers(-100, 0, 400))
    assert_right(of, solve(of))
    assert parts == [100, 200, 400]


@settings(max_examples=examples(60))
@given(problems(jobs=4, kinds=2, slots=2), st.data())
def test_any_prices_give_a_lower_bound(of: Problem, data: st.DataObject) -> None:
    prices = [data.draw(st.lists(st.integers(0, 2_000), max_size=5)) for _ in of.free_at]
    assert lower_bound(of, tuple(np.array(of_kind, np.int64) for of_kind in prices)) <= exhaustive(of)


def test_wrong_prices_prove_nothing() -> None:
    of = problem([[3, 4], [4, 6], [5, 10]], [[0], [0]])
    prices = solve(of).prices
    raised = (prices[0] + 1, *prices[1:])
    assert lower_bound(of, raised) < lower_bound(of, prices) == 17


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_a_flow_costs_no_more_than_the_plan_that_it_begins_with(seed: int) -> None:
    of = instance(random_problem(seed))
    plan = greedy(of, of.times < FAR)
    for reach in (1, 4):
        assert cost(of, flow(of, plan, lambda position, reach=reach: np.full_like(position, reach))) <= cost(of, plan)


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32))
def test_rounding_for_the_flow_does_not_change_the_optimum(seed: int) -> None:
    of = random_problem(seed)
    exact = solve(of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_module, "_LARGEST", 1 << 24)
        rounded = solve(of)
    assert_right(of, rounded)
    assert rounded.cost == exact.cost


def test_times_of_centuries_are_rounded_for_the_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    units = []
    unit = flow_module._unit
    monkeypatch.setattr(flow_module, "_unit", lambda *given: units.append(unit(*given)) or units[-1])
    rng = np.random.default_rng(1)
    times = rng.integers(1, 1 << 50, (150, 2))
    of = Problem(times, (np.array([0]), np.array([3, 1 << 40])), np.zeros(150, np.int64))
    assert_right(of, solve(of))
    assert max(units) > 1


def test_the_largest_costs_that_are_not_rounded_are_in_the_range_of_the_library() -> None:
    """One slot, so that positions are as many as jobs."""
    jobs = 40
    longest = flow_module._LARGEST // (jobs * (2 * jobs + 50))
    times = np.linspace(longest, longest // 2, jobs).astype(np.int64)[:, None]
    of = instance(Problem(times, (np.array([0]),), np.zeros(jobs, np.int64)))
    plan = greedy(of, of.times < FAR)
    assert cost(of, flow(of, plan, lambda position: np.full_like(position, jobs))) == cost(of, plan)


@settings(max_examples=examples(100))
@given(problems(), st.data())
def test_whatever_is_remembered_leads_to_the_same_cost(of: Problem, data: st.DataObject) -> None:
    jobs = len(of.arrived)
    numbers = st.lists(st.integers(-2, 12), min_size=jobs, max_size=jobs)
    before = tuple(np.array(data.draw(numbers), np.int64) for _ in range(2))
    matching = solve(of, (before[0], before[1]))
    assert_right(of, matching)
    assert matching.cost == solve(of).cost


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32), st.sampled_from((0, 1, 3, 15, 16, 17, 40)))
def test_new_jobs_enter_a_solved_queue(seed: int, new: int) -> None:
    of = random_problem(seed)
    old = solve(Problem(of.times[new:], of.free_at, of.arrived[new:]))
    nowhere = np.full(min(new, len(of.arrived)), NOWHERE)
    matching = solve(of, (np.append(nowhere, old.kind), np.append(nowhere, old.position)))
    assert_right(of, matching)


def test_an_exchange_that_saves_a_microsecond_is_found() -> None:
    """Prices sink by that microsecond in each round of the search."""
    of = problem([[10 * DAY, 10 * DAY], [10 * DAY, 10 * DAY - 1]], [[0], [0]])
    matching = solve(of, (np.array([1, 0]), np.array([1, 1])))
    assert_right(of, matching)
    assert matching.kind.tolist() == [0, 1]


def test_one_arrival_needs_no_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    of = random_problem(7)
    old = solve(Problem(of.times[1:], of.free_at, of.arrived[1:]))
    monkeypatch.setattr(solve_module, "flow", lambda *_: pytest.fail("a flow was solved"))
    assert_right(of, solve(of, (np.append(NOWHERE, old.kind), np.append(NOWHERE, old.position))))


def test_a_schedule_that_goes_as_planned_stays_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that starts leaves the queue, and its slot is free when it ends: the rest is matched already."""
    of = random_problem(11)
    matching = solve(of)
    assert len(of.arrived) > 20
    monkeypatch.setattr(solve_module, "flow", lambda *_: pytest.fail("a flow was solved"))
    monkeypatch.setattr(solve_module, "cheaper", lambda *_: pytest.fail("the plan was not optimal"))
    for _ in range(10):
        job = int(np.flatnonzero(matching.first)[0])
        kind, slot = matching.kind[job], matching.slot[job]
        free_at = [slots.copy() for slots in of.free_at]
        free_at[kind][slot] += of.times[job, kind]
        run = free_at[kind][slot] - of.arrived[job]
        of = Problem(np.delete(of.times, job, 0), tuple(free_at), np.delete(of.arrived, job))
        rest = solve(of, (np.delete(matching.kind, job), np.delete(matching.position, job)))
        assert rest.cost + run == matching.cost
        matching = rest
