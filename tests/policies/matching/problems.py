"""Problems, and references to compare the solver with."""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate, permutations, product

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from scheduler_service.policies.allox.matching.certificate import lower_bound
from scheduler_service.policies.allox.matching.problem import NEVER, NOWHERE, Matching, Problem

DAY = 24 * 3_600 * 1_000_000


def problem(
    times: Sequence[Sequence[int | None]], free_at: Sequence[Sequence[int]], arrived: Sequence[int] | None = None
) -> Problem:
    """None is a kind that a job cannot use. Without `arrived`, all jobs arrived at 0."""
    rows = [[NEVER if time is None else time for time in row] for row in times]
    return Problem(
        np.array(rows, np.int64).reshape(len(times), len(free_at)),
        tuple(np.array(slots, np.int64) for slots in free_at),
        np.array(arrived or [0] * len(times), np.int64),
    )


@st.composite
def problems(draw: st.DrawFn, jobs: int = 8, kinds: int = 3, slots: int = 4, longest: int = 1_000) -> Problem:
    """Small numbers, equal ones, refusals, empty kinds, and one kind alone are all likely."""
    most = draw(st.sampled_from((1, 3, 20, longest)))
    a_time = st.integers(1, most)
    time = draw(st.sampled_from((a_time, a_time | st.none())))
    of = draw(st.integers(1, kinds))
    times = draw(st.lists(st.lists(time, min_size=of, max_size=of), max_size=jobs))
    free = st.integers(100, 100 + draw(st.sampled_from((0, most, 5 * most))))
    free_at = [draw(st.lists(free, max_size=slots)) for _ in range(of)]
    arrived = draw(st.lists(st.integers(0, 100), min_size=len(times), max_size=len(times)))
    return problem(times, free_at, arrived)


def exhaustive(given: Problem) -> int:
    """The least cost over all schedules: every way to share out the jobs, and every order of the jobs of a slot."""
    slots = [(kind, int(free)) for kind, of_kind in enumerate(given.free_at) for free in of_kind]
    usable = [[at for at, (kind, _) in enumerate(slots) if row[kind] != NEVER] for row in given.times]

    @cache
    def alone(slot: int, jobs: tuple[int, ...]) -> int:
        kind, free = slots[slot]
        return min(
            sum(accumulate((int(given.times[job, kind]) for job in turn), initial=free)) - free for turn in permutations(jobs)
        ) - sum(int(given.arrived[job]) for job in jobs)

    placed = [job for job, some in enumerate(usable) if some]
    costs = []
    for chosen in product(*(usable[job] for job in placed)):
        turns = {slot: tuple(job for job, at in zip(placed, chosen, strict=True) if at == slot) for slot in chosen}
        costs.append(sum(alone(slot, jobs) for slot, jobs in turns.items()))
    return min(costs)


def by_cost_matrix(given: Problem) -> int:
    """The optimum of sections 3.1 and 3.2 as printed: Q = [P, 2P, ..., nP] + [D, D, ..., D], with a node for each position of
    each slot."""
    jobs = len(given.arrived)
    graph = nx.DiGraph()
    placed = 0
    for job in range(jobs):
        edges = [
            (kind, slot, k, k * int(given.times[job, kind]) + int(free) - int(given.arrived[job]))
            for kind, of_kind in enumerate(given.free_at)
            if given.times[job, kind] != NEVER
            for slot, free in enumerate(of_kind)
            for k in range(1, jobs + 1)
        ]
        if not edges:
            continue
        placed += 1
        graph.add_node(job, demand=-1)
        for kind, slot, k, cost in edges:
            graph.add_edge(job, (kind, slot, k), capacity=1, weight=cost)
            graph.add_edge((kind, slot, k), "sink", capacity=1, weight=0)
    if not placed:
        return 0
    graph.add_node("sink", demand=placed)
    cost: int = nx.min_cost_flow_cost(graph)
    return cost


def assert_right(given: Problem, matching: Matching) -> None:
    """The matching is a schedule, `cost` is what that schedule costs, and no schedule costs less."""
    turns: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for job, (kind, slot, position) in enumerate(zip(matching.kind, matching.slot, matching.position, strict=True)):
        if kind == NOWHERE:
            possible = [time != NEVER and len(slots) for time, slots in zip(given.times[job], given.free_at, strict=True)]
            assert not any(possible)
            assert (slot, position, matching.start[job], matching.first[job]) == (NOWHERE, NOWHERE, NOWHERE, False)
        else:
            turns.setdefault((int(kind), int(slot)), []).append((-int(position), job))
    cost = 0
    for (kind, slot), turn in turns.items():
        turn.sort()
        assert [-position for position, _ in turn] == list(range(len(turn), 0, -1))
        now = int(given.free_at[kind][slot])
        for at, (_, job) in enumerate(turn):
            assert given.times[job, kind] != NEVER
            assert matching.start[job] == now
            assert matching.first[job] == (at == 0)
            now += int(given.times[job, kind])
            cost += now - int(given.arrived[job])
    assert matching.cost == cost
    assert lower_bound(given, matching.prices) == cost
