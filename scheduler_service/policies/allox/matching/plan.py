"""A plan: the kind of each job, and how many jobs each position of each kind has.

Nothing else needs to be known. Of the jobs of a kind the longest ones have position 1, the next ones position 2, and so on. The
c jobs of a position are on the c slots that are free first.

From a plan follows a matching: on which slots, and when. Of the jobs at one position the shortest gets the slot that is free
first, and of equally long ones the first to arrive.
"""

from typing import NamedTuple

import numpy as np

from scheduler_service.policies.allox.matching.instance import FAR, Instance
from scheduler_service.policies.allox.matching.problem import NOWHERE, Ints, Matching, Problem


class Plan(NamedTuple):
    kind: Ints
    """NOWHERE for a job that is not placed yet."""
    counts: tuple[Ints, ...]
    """For each kind, how many jobs its positions 1, 2, ... have: never 0, and never more than the position before."""
    order: Ints
    """The placed jobs: those of a kind together, the longest first."""
    position: Ints
    above: Ints
    """Jobs x kinds: of the jobs of the kind, the position of the last one that is not behind this one in `longest_first`; of
    the first one if all are behind."""
    below: Ints
    """Jobs x kinds: the position of the first job that is behind this one; the first empty position if none is."""
    width: int
    """How many positions of each kind have prices: one more than are in use anywhere."""

    def own(self, instance: Instance) -> Ints:
        """The times of the placed jobs where they are, in the order of `order`."""
        return instance.times[self.order, self.kind[self.order]]


def plan(instance: Instance, kind: Ints, counts: list[Ints]) -> Plan:
    """The cheapest plan in which the jobs have these kinds, and the positions these numbers of jobs, in falling order."""
    used = tuple(np.sort(of_kind[of_kind > 0])[::-1] for of_kind in counts)
    position = np.full(len(kind), NOWHERE, np.int64)
    above, below = np.ones_like(instance.times), np.ones_like(instance.times)
    order = [np.empty(0, np.int64)]
    for h, (jobs, of_kind) in enumerate(zip(instance.longest_first, used, strict=True)):
        if not len(of_kind):
            continue
        here = kind[jobs] == h
        order.append(jobs[here])
        positions = np.repeat(np.arange(1, len(of_kind) + 1), of_kind)
        position[order[-1]] = positions
        beside = np.concatenate((positions[:1], positions, [len(of_kind) + 1]))
        at = np.cumsum(here)
        above[jobs, h], below[jobs, h] = beside[at], beside[at + 1]
    refused = instance.times == FAR
    above[refused] = below[refused] = 1
    return Plan(kind, used, np.concatenate(order), position, above, below, max(map(len, used), default=0) + 1)


def cost(instance: Instance, plan: Plan) -> int:
    """The sum of all completion times, counted from the instance's base."""
    waits = sum(total(sums[of_kind]) for sums, of_kind in zip(instance.sums, plan.counts, strict=True))
    return total(plan.position[plan.order] * plan.own(instance)) + waits


def total(values: Ints) -> int:
    """Their sum, which may have more than 64 bits."""
    low = np.int64((1 << 32) - 1)
    return (int((values >> 32).sum()) << 32) + int((values & low).sum())


def matching(problem: Problem, instance: Instance, plan: Plan, prices: Ints) -> Matching:
    """The matching of a plan in which all jobs of the instance are placed. `prices` are those of its residual graph."""
    kind, slot, position, start = (np.full(len(problem.arrived), NOWHERE, np.int64) for _ in range(4))
    first = np.zeros(len(problem.arrived), np.bool_)
    kind[instance.jobs] = plan.kind
    begin = 0
    for h, counts in enumerate(plan.counts):
        jobs = plan.order[begin : begin + int(counts.sum())]
        begin += len(jobs)
        times, at, whose = instance.times[jobs, h], plan.position[jobs], instance.jobs[jobs]
        ranks = _ranks(at, times, problem.arrived[whose], counts)
        starts = _starts(instance.slots[h], ranks, at, times)
        places = np.lexsort((starts, times))
        whose = whose[np.lexsort((whose, problem.arrived[whose], times))]
        slot[whose], position[whose] = instance.ranked[h][ranks[places]], at[places]
        start[whose] = starts[places] + instance.base
        first[whose] = at[places] == np.bincount(ranks)[ranks[places]]
    rows = zip(instance.slots, plan.counts, prices, strict=True)
    known = tuple(row[: len(counts) + 1] + instance.base if len(slots) else row[:0] for slots, counts, row in rows)
    whole = cost(instance, plan) + len(instance.jobs) * instance.base - total(problem.arrived[instance.jobs])
    return Matching(kind, slot, position, first, start, whole, known)


def _ranks(positions: Ints, times: Ints, arrived: Ints, counts: Ints) -> Ints:
    """The slot of each job, of those in the order in which they are free. The jobs of a position may share out its slots in any
    way: that costs nothing by the plan. But what starts first is all that a plan is used for, and a short job makes way sooner
    for jobs that have not come yet."""
    ranks = np.empty_like(positions)
    ranks[np.lexsort((arrived, times, positions))] = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


def _starts(slots: Ints, ranks: Ints, positions: Ints, times: Ints) -> Ints:
    """When each job starts: after those with higher positions on its slot."""
    turn = np.lexsort((-positions, ranks))
    ran = np.cumsum(times[turn]) - times[turn]
    jobs = np.bincount(ranks)
    starts = np.empty_like(times)
    starts[turn] = slots[ranks[turn]] + ran - np.repeat(ran[np.cumsum(jobs) - jobs], jobs)
    return starts
