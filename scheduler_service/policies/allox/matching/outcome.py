"""From a plan to a matching: on which slots, and when.

Of the jobs at one position the shortest gets the slot that is free first, and of equally long ones the first to arrive."""

import numpy as np

from scheduler_service.policies.allox.matching.instance import Instance
from scheduler_service.policies.allox.matching.plan import Plan, cost, total
from scheduler_service.policies.allox.matching.problem import NOWHERE, Ints, Matching, Problem


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
