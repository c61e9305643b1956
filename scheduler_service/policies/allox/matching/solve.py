"""The exact matching (AlloX, section 3)."""

from collections.abc import Callable
from typing import Final

import numpy as np

from scheduler_service.policies.allox.matching.flow import flow
from scheduler_service.policies.allox.matching.greedy import greedy
from scheduler_service.policies.allox.matching.instance import FAR, Instance, instance, with_earlier_slots
from scheduler_service.policies.allox.matching.moves import cheaper, cheapest, enter_job
from scheduler_service.policies.allox.matching.plan import Plan, cost, matching, plan
from scheduler_service.policies.allox.matching.problem import NOWHERE, Ints, Matching, Problem, check
from scheduler_service.policies.allox.matching.residual import Residual, residual

_FEW: Final = 16
"""How many jobs enter a plan of before, and how many improvements it has, one at a time. A flow takes less time than more."""

_LONG: Final = 64
"""How many positions make a queue a long one."""


def solve(problem: Problem, before: tuple[Ints, Ints] | None = None) -> Matching:
    """A matching of least cost. A job that no slot can run is placed NOWHERE and costs nothing.

    `before` saves time if little has changed since an earlier matching. It has the kind and the position that each job had
    there, and NOWHERE for new jobs; it may be out of date in any way. If several matchings have the least cost, `before` may
    decide between them; without it, the matching is a function of the problem. Raises ValueError if a time is out of range or
    a shape is wrong.
    """
    check(problem)
    if before is not None and not len(before[0]) == len(before[1]) == len(problem.arrived):
        raise ValueError(f"{len(before[0])} kinds and {len(before[1])} positions are known of {len(problem.arrived)} jobs")
    of = instance(problem)
    optimum = None if before is None else _nearby(of, *(part[of.jobs] for part in before))
    current, found = optimum or _solve_from_scratch(of)
    return matching(problem, of, current, found.prices)


def _solve_from_scratch(of: Instance) -> tuple[Plan, Residual]:
    """The optimal plan and its prices. A long queue is solved for some of its jobs first, then for twice as many, and so on.
    With half of the jobs, and slots free in half the time, every position and every price is about half of what it is."""
    usable = of.times < FAR
    begin = greedy(of, usable)
    if begin.width < _LONG:
        return _optimum(of, begin, _wide)
    turn = np.empty(len(of.jobs), np.int64)
    turn[np.argsort(of.times.min(axis=1), kind="stable")] = np.arange(len(turn))
    every = 1 << (begin.width // _LONG).bit_length()
    part, allowed, reach = with_earlier_slots(of, every), usable, _wide
    while True:
        taken = (turn % every == 0)[:, None]
        current, found = _optimum(part, greedy(part, allowed & taken), reach)
        if every == 1:
            return current, found
        best = cheapest(part, current, found, np.arange(len(turn))) // current.width
        kind = np.where(current.kind == NOWHERE, best, current.kind)
        every //= 2
        part, allowed, reach = with_earlier_slots(of, every), kind[:, None] == np.arange(usable.shape[1]), _narrow


def _optimum(of: Instance, current: Plan, reach: Callable[[Ints], Ints]) -> tuple[Plan, Residual]:
    """The optimal plan for the jobs of a plan, and its prices. If a flow finds nothing cheaper, nothing cheaper exists, unless
    the flow had to round. In that case single improvements lead to the optimum."""
    exact = True
    while (found := residual(of, current)).begin is not None:
        better = flow(of, current, reach) if exact else current
        exact = cost(of, better) < cost(of, current)
        current, reach = better if exact else cheaper(of, current, found), _narrow
    return current, found


def _wide(position: Ints) -> Ints:
    """How far the first flow may take a job from its position in the greedy plan: mostly far enough to be the last flow."""
    return 2 + np.minimum(position // 8, 30)


def _narrow(position: Ints) -> Ints:
    """How far the flows after it may."""
    return 1 + np.minimum(position // 16, 15)


def _nearby(of: Instance, kind: Ints, position: Ints) -> tuple[Plan, Residual] | None:
    """The same, by a few changes to the plan of before. None if it takes more than a few."""
    current = _plan_from_before(of, kind, position)
    waiting = np.flatnonzero(current.kind == NOWHERE).tolist()
    if len(waiting) > _FEW:
        return None
    for _ in range(_FEW + len(waiting)):
        found = residual(of, current)
        if found.begin is not None:
            current = cheaper(of, current, found)
        elif waiting:
            current = enter_job(of, current, found, waiting.pop())
        else:
            return current, found
    return None


def _plan_from_before(of: Instance, kind: Ints, position: Ints) -> Plan:
    """The plan of before, as far as it is still possible."""
    known = (kind >= 0) & (kind < len(of.slots)) & (position >= 1)
    jobs = np.flatnonzero(known)
    known[jobs] = of.times[jobs, kind[jobs]] < FAR
    position = np.minimum(position, len(kind)) - 1
    counts = [np.bincount(position[known & (kind == h)]) for h in range(len(of.slots))]
    fitting = [_fitting(of_kind, len(slots)) for of_kind, slots in zip(counts, of.slots, strict=True)]
    return plan(of, np.where(known, kind, NOWHERE), fitting)


def _fitting(counts: Ints, slots: int) -> Ints:
    """As many jobs, but at most `slots` at each position: those too many have the next position."""
    fitting, over = [], 0
    for count in counts.tolist():
        over += count
        fitting.append(min(over, slots))
        over -= fitting[-1]
    while over:
        fitting.append(min(over, slots))
        over -= fitting[-1]
    return np.array(fitting, np.int64)
