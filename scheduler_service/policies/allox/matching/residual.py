"""Whether a plan is optimal; and if not, what makes it cheaper.

Nodes are the positions of kinds. The price of a position is what one more job there would cost in addition to its own time: the
position takes another slot, or it passes one of its jobs on to another position and pays what that job costs there. So prices
are lengths of shortest paths (Bellman and Ford). A plan is optimal if and only if no circle of moves saves anything, and no
price is below the cost of the last slot that its position uses.

Three kinds of moves are enough. Every other move is at least as long as a path of these (docs/matching.md):
- the shortest job of a position moves to the next position of its kind;
- the longest job of a position moves to the position before;
- any job moves to another kind, next to the jobs that take about as long there.
"""

from typing import NamedTuple

import numpy as np

from scheduler_service.policies.allox.matching.instance import FAR, Instance
from scheduler_service.policies.allox.matching.plan import Plan
from scheduler_service.policies.allox.matching.problem import Ints

NOBODY = -1


class Residual(NamedTuple):
    """Each table is kinds x positions. A position's number is its index in the flat table."""

    prices: Ints
    """The prices of the positions; not final if the plan is not optimal."""
    towards: Ints
    """The number of the position to which a job moves for that price, or NOBODY: the position takes another slot."""
    mover: Ints
    """Which job moves."""
    begin: int | None
    """The number of a position where an improvement begins: its last slot costs more than its price, or the moves from it lead
    back to it. None: the plan is optimal."""


class _Chain(NamedTuple):
    """Costs of changing the positions of each kind, and their jobs at either end. Each table is kinds x positions."""

    take: Ints
    """The cost of another slot."""
    give: Ints
    """The cost of the last slot in use."""
    longest: Ints
    """A job, or NOBODY at the empty position."""
    shortest: Ints
    rise: Ints
    """The cost of one job more here and one less at position 1, if each position between passes its shortest job on."""
    fall: Ints
    """The saving of one job less here, if this position and each one before it passes its longest job on."""
    numbers: Ints
    """The numbers of the positions in use."""
    ends: Ints
    """For each of these positions, the index in the plan's order at which its jobs end."""


def residual(instance: Instance, plan: Plan) -> Residual:
    chain = _chain(instance, plan)
    prices = chain.take.copy()
    towards, mover = np.full_like(prices, NOBODY), np.full_like(prices, NOBODY)
    numbers = np.arange(prices.size).reshape(prices.shape)
    occupied = chain.longest != NOBODY
    across = _Across(instance, plan, chain)
    while True:
        risen = np.minimum.accumulate((prices + chain.rise)[:, ::-1], axis=1)[:, ::-1] - chain.rise
        better = risen < prices
        for table, value in (prices, risen), (towards, numbers + 1), (mover, chain.shortest):
            np.copyto(table, value, where=better)
        fallen = np.minimum.accumulate(prices + chain.fall, axis=1) - chain.fall
        better = occupied & (fallen < prices)
        for table, value in (prices, fallen), (towards, numbers - 1), (mover, chain.longest):
            np.copyto(table, value, where=better)
        overpaid = prices < chain.give
        if overpaid.any():
            return Residual(prices, towards, mover, int(overpaid.argmax()))
        if not across.improve(prices.ravel(), towards.ravel(), mover.ravel()):
            return Residual(prices, towards, mover, None)
        circle = _circle(towards.ravel())
        if circle is not None:
            return Residual(prices, towards, mover, circle)


def _chain(instance: Instance, plan: Plan) -> _Chain:
    shape = len(instance.slots), plan.width
    take, give = np.full(shape, FAR), np.full(shape, -FAR)
    longest, shortest = np.full(shape, NOBODY), np.full(shape, NOBODY)
    rise, fall = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    own = plan.own(instance)
    numbers, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    begin = 0
    for kind, (slots, counts) in enumerate(zip(instance.slots, plan.counts, strict=True)):
        if not len(slots):
            continue
        used = len(counts)
        take[kind, : used + 1] = np.append(slots, FAR)[np.append(counts, 0)]
        give[kind, :used] = slots[counts - 1]
        end = begin + np.cumsum(counts)
        longest[kind, :used], shortest[kind, :used] = plan.order[end - counts], plan.order[end - 1]
        rise[kind, 1:] = np.cumsum(np.pad(own[end - 1], (0, plan.width - 1 - used)))
        fall[kind] = np.cumsum(np.pad(own[end - counts], (0, plan.width - used)))
        numbers.append(kind * plan.width + np.arange(used))
        ends.append(end)
        begin = int(end[-1]) if used else begin
    return _Chain(take, give, longest, shortest, rise, fall, np.concatenate(numbers), np.concatenate(ends))


def _circle(towards: Ints) -> int | None:
    """A position from which the moves lead back to it. Such a circle saves something, and its prices would never settle."""
    ahead = np.where(towards == NOBODY, np.arange(len(towards)), towards)
    for _ in range(len(towards).bit_length()):
        ahead = ahead[ahead]
    endless = towards[ahead] != NOBODY
    return int(ahead[endless.argmax()]) if endless.any() else None


class _Across:
    """The moves to other kinds."""

    def __init__(self, instance: Instance, plan: Plan, chain: _Chain) -> None:
        times = instance.times[plan.order]
        row = plan.width * np.arange(times.shape[1]) - 1
        above, below = plan.above[plan.order], plan.below[plan.order]
        self.places = np.hstack((row + above, row + below))
        self.costs = np.hstack((above * times, below * times)) - (plan.position[plan.order] * plan.own(instance))[:, None]
        self.jobs, self.numbers = plan.order, chain.numbers
        self.sizes = np.diff(chain.ends, prepend=0)
        self.starts = chain.ends - self.sizes

    def improve(self, prices: Ints, towards: Ints, mover: Ints) -> bool:
        """Lowers the price of each position that had better pass a job on to another kind. Returns whether there was any."""
        if not len(self.jobs):
            return False
        prices_there = self.costs + prices[self.places]
        cheapest = prices_there.min(axis=1)
        best = np.minimum.reduceat(cheapest, self.starts)
        better = best < prices[self.numbers]
        if not better.any():
            return False
        # For each such position, the first job for which that price is true.
        jobs = np.flatnonzero(np.repeat(better, self.sizes) & (cheapest == np.repeat(best, self.sizes)))
        which, at = np.unique(np.repeat(self.numbers, self.sizes)[jobs], return_index=True)
        jobs = jobs[at]
        prices[which], mover[which] = cheapest[jobs], self.jobs[jobs]
        towards[which] = self.places[jobs, prices_there[jobs].argmin(axis=1)]
        return True
