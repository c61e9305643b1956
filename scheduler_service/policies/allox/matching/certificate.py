"""A lower bound on the cost of every plan, which the prices of a matching prove."""

import numpy as np

from scheduler_service.policies.allox.matching.plan import total
from scheduler_service.policies.allox.matching.problem import NEVER, Ints, Problem


def lower_bound(problem: Problem, prices: tuple[Ints, ...]) -> int:
    """A lower bound on the cost of every plan, whatever the prices are (weak duality). A matching is optimal if its prices give
    its cost.

    `prices[h][k - 1]` is the price of position k of kind h. All further positions have the price at which the kind's first slot
    is free. A job that no slot can run costs nothing. This takes time in proportion to the number of jobs times positions; the
    solver has the same proof in less (`residual`).
    """
    cheapest = np.full(len(problem.arrived), NEVER)
    gained = 0
    for kind, (slots, of_kind) in enumerate(zip(problem.free_at, prices, strict=True)):
        if not len(slots):
            continue
        jobs = np.flatnonzero(problem.times[:, kind] != NEVER)
        times = problem.times[jobs, kind]
        for position, price in enumerate((*of_kind.tolist(), int(slots.min())), 1):
            cheapest[jobs] = np.minimum(cheapest[jobs], position * times + price)
            gained += total(np.maximum(price - slots, 0))
    placed = cheapest != NEVER
    return total(cheapest[placed]) - gained - total(problem.arrived[placed])
