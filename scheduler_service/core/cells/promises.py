"""Cells that virtual clusters own and have bound, and whether the free cells keep the promise (HiveD, Eqns 1 and 2).
And whether a cluster can keep what it promises its virtual clusters (a feasible assignment).

Eqn 2, `r_k - a_k <= f_k + F_k` at each level, is held over healthy cells. Where it cannot be, the cells that are missing at a
level are taken off r_k, from the top down, so that what is below is not counted for cells that cannot be had.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.model.tenants.virtual_clusters import Owner


class Balance(NamedTuple):
    """The cells that can be had and those that are claimed, by level."""

    obtainable: tuple[int, ...]
    """f_k + F_k: free cells, and those to be had by splitting larger ones that no VC has a claim to."""
    left: tuple[int, ...]
    """Obtainable cells that are left when all claims are met."""
    missing: tuple[int, ...]
    """Claims that cannot be met."""


def balance(free: Sequence[int], claims: Sequence[int], fan: Sequence[int]) -> Balance:
    """Eqn 1 from the top down. `claims` are r_k - a_k, free virtual cells."""
    levels = len(fan)
    obtainable, left, missing = [0] * levels, [0] * levels, [0] * levels
    split = 0  # F_k
    for level in range(levels - 1, -1, -1):
        have = obtainable[level] = free[level] + split
        over = have - claims[level]
        if over > 0:
            left[level], split = over, over * fan[level]
        else:
            missing[level], split = -over, 0
    return Balance(tuple(obtainable), tuple(left), tuple(missing))


def holds(free: Sequence[int], claims: Sequence[int], fan: Sequence[int]) -> bool:
    """Whether nothing is missing at any level, as in `balance`. Costs a third of it."""
    split = 0
    for level in range(len(fan) - 1, -1, -1):
        over = free[level] + split - claims[level]
        if over < 0:
            return False
        split = over * fan[level]
    return True


class Promises:
    """r and a, in total and for each VC."""

    __slots__ = ("claims", "mine", "none", "quota", "reserved", "unbound")

    def __init__(self, levels: int) -> None:
        self.none = (0,) * levels
        self.quota: dict[Owner, tuple[int, ...]] = {}
        """VC -> r_{t,k} by level; `none` where it owns nothing."""
        self.mine: dict[tuple[Owner, int], set[int]] = {}
        """(VC, level) -> its bound cells; there are a_{t,k} of them."""
        self.unbound: dict[Owner, list[int]] = {}
        """VC -> r_{t,k} - a_{t,k} by level: negative where it has more bound than it owns."""
        self.reserved = [0] * levels
        self.claims = [0] * levels
        """Free virtual cells of all VCs. A VC that has more bound than it owns (it was made smaller) has none, and takes
        nothing from the others' claims."""

    def count_owned(self, vc: Owner, level: int) -> int:
        """r_{t,k}"""
        return self.quota.get(vc, self.none)[level]

    def free_of(self, vc: Owner, level: int) -> int:
        """Its free virtual cells."""
        return max(0, self.unbound.get(vc, self.none)[level])

    def set_quota(self, vc: Owner, level: int, count: int) -> None:
        before, free = self.quota.pop(vc, self.none), self.free_of(vc, level)
        after = (*before[:level], count, *before[level + 1 :])
        if any(after):
            self.quota[vc] = after
        self.reserved[level] += count - before[level]
        self._unbound(vc)[level] += count - before[level]
        self.claims[level] += self.free_of(vc, level) - free

    def bind(self, vc: Owner, level: int, index: int) -> None:
        cells = self.mine.get((vc, level))
        if cells is None:
            cells = self.mine[vc, level] = set()
        cells.add(index)
        unbound = self._unbound(vc)
        unbound[level] -= 1
        if unbound[level] >= 0:
            self.claims[level] -= 1

    def unbind(self, vc: Owner, level: int, index: int) -> None:
        unbound, cells = self.unbound[vc], self.mine[vc, level]
        if unbound[level] >= 0:
            self.claims[level] += 1
        unbound[level] += 1
        cells.remove(index)
        if not cells:
            del self.mine[vc, level]

    def _unbound(self, vc: Owner) -> list[int]:
        found = self.unbound.get(vc)
        if found is None:
            found = self.unbound[vc] = [0] * len(self.none)
        return found


class Shortfall(NamedTuple):
    level: int
    missing: int


def feasible(available: Mapping[int, int], shape: Shape, quotas: Mapping[int, int]) -> Shortfall | None:
    """The highest level at which the quotas, of all VCs together, are not met, and how many cells are missing there.

    A pinned cell is bound from the beginning and never released. So it is left out of both sides here: out of what is
    available, with everything it splits, and out of the quotas. (In a `Pool` it is on both sides: its binding counts in
    a_{t,k}, and the quota that is set there counts it in r_{t,k}.)

    >>> feasible({1: 3}, Shape(("device", "node"), (1, 2), 1), {1: 2, 0: 3})
    Shortfall(level=0, missing=1)
    """
    levels = range(len(shape.fan))
    missing = balance([available.get(k, 0) for k in levels], [quotas.get(k, 0) for k in levels], shape.fan).missing
    return next((Shortfall(level, missing[level]) for level in reversed(levels) if missing[level]), None)
