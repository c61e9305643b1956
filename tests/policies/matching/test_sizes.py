"""Jobs of several sizes, where slots are cells of levels (docs/matching.md#several-sizes)."""

from itertools import permutations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_service.policies.allox.matching.problem import NEVER, Problem
from scheduler_service.policies.allox.matching.solve import solve
from tests.thorough import examples

Job = tuple[int, int]
"""Devices, and time."""

CELLS = {1: (0b0001, 0b0010, 0b0100, 0b1000), 2: (0b0011, 0b1100), 4: (0b1111,)}
"""Of a node of four devices."""


def by_levels(jobs: list[Job], cells: dict[int, tuple[int, ...]], free: list[int]) -> Problem:
    """A kind for each level that has cells; a cell is free when the last of its devices is."""
    at = {size: [max(free[d] for d in range(4) if cell >> d & 1) for cell in of_size] for size, of_size in cells.items()}
    times = [[time if devices == size else NEVER for size in cells] for devices, time in jobs]
    arrived = np.zeros(len(jobs), np.int64)
    return Problem(np.array(times, np.int64), tuple(np.array(slots, np.int64) for slots in at.values()), arrived)


def best_gang_schedule(jobs: list[Job], cells: dict[int, tuple[int, ...]], free: list[int]) -> int:
    """The least sum of completion times, if each job runs on one cell of its size and starts once all its devices are free."""
    best = 1 << 60
    for order in permutations(jobs):
        for chosen in product(*(cells[devices] for devices, _ in order)):
            at, total = list(free), 0
            for (_, time), cell in zip(order, chosen, strict=True):
                inside = [d for d in range(4) if cell >> d & 1]
                done = max(at[d] for d in inside) + time
                for d in inside:
                    at[d] = done
                total += done
            best = min(best, total)
    return best


jobs_of = st.lists(st.tuples(st.sampled_from((1, 2, 4)), st.integers(1, 9)), min_size=1, max_size=4)
free_times = st.lists(st.integers(0, 9), min_size=4, max_size=4)


@settings(max_examples=examples(60))
@given(jobs_of, free_times)
def test_nested_cells_give_a_lower_bound(jobs: list[Job], free: list[int]) -> None:
    assert solve(by_levels(jobs, CELLS, free)).cost <= best_gang_schedule(jobs, CELLS, free)


@settings(max_examples=examples(60))
@given(jobs_of, free_times)
def test_disjoint_cells_are_matched_exactly(jobs: list[Job], free: list[int]) -> None:
    cells = {1: (0b0001, 0b0010), 2: (0b1100,)}
    jobs = [(min(devices, 2), time) for devices, time in jobs]
    assert solve(by_levels(jobs, cells, free)).cost == best_gang_schedule(jobs, cells, free)


@settings(max_examples=examples(60))
@given(jobs_of, free_times)
def test_a_matching_on_cells_that_do_not_overlap_is_optimal(jobs: list[Job], free: list[int]) -> None:
    matching = solve(by_levels(jobs, CELLS, free))
    levels = list(CELLS.values())
    used = {levels[kind][slot] for kind, slot in zip(matching.kind, matching.slot, strict=True)}
    if sum(cell.bit_count() for cell in used) == (sum(used)).bit_count():
        assert matching.cost == best_gang_schedule(jobs, CELLS, free)


def test_the_bound_may_be_out_of_reach() -> None:
    """A job for the node and one for a device cannot start together."""
    jobs, idle = [(4, 5), (1, 5)], [0] * 4
    assert solve(by_levels(jobs, CELLS, idle)).cost == 10
    assert best_gang_schedule(jobs, CELLS, idle) == 15
