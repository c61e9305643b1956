"""What virtual clusters own and have bound, and whether what is free keeps the promise (HiveD, Eqns 1 and 2).

Eqn 2, `r_k - a_k <= f_k + F_k` at each level, is held over healthy cells. Where it cannot be, the cells that are missing at a
level are taken off r_k, from the top down, so that what is below is not counted for cells that nobody can get.
"""

from collections.abc import Sequence
from typing import NamedTuple

from scheduler_service.core.vc import Owner


class Balance(NamedTuple):
    """By level."""

    obtainable: tuple[int, ...]
    """f_k + F_k: free cells, and those to be had by splitting larger ones that nobody has a claim to."""
    left: tuple[int, ...]
    """Of these, what no claim stands against."""
    missing: tuple[int, ...]
    """Claims that nothing stands against."""


def balance(free: Sequence[int], claims: Sequence[int], fan: Sequence[int]) -> Balance:
    """Eqn 1 from the top down. `claims` are r_k - a_k, free virtual cells."""
    obtainable, left, missing = [], [], []
    split = 0  # F_k
    for count, claimed, into in zip(reversed(free), reversed(claims), reversed(fan), strict=True):
        have = count + split
        over = have - claimed
        split = over * into if over > 0 else 0
        obtainable.append(have)
        left.append(over if over > 0 else 0)
        missing.append(-over if over < 0 else 0)
    return Balance(tuple(obtainable[::-1]), tuple(left[::-1]), tuple(missing[::-1]))


class Promises:
    """r and a, in all and for each VC."""

    __slots__ = ("allocated", "claims", "mine", "quota", "reserved")

    def __init__(self, levels: int) -> None:
        self.quota: dict[tuple[Owner, int], int] = {}
        """(VC, level) -> r_{t,k}."""
        self.mine: dict[tuple[Owner, int], set[int]] = {}
        """(VC, level) -> its bound cells; there are a_{t,k} of them."""
        self.reserved = [0] * levels
        self.allocated = [0] * levels
        self.claims = [0] * levels
        """Free virtual cells of all VCs. A VC that has more bound than it owns (it was made smaller) has none, and takes
        nothing from the others' claims."""

    def free_of(self, vc: Owner, level: int) -> int:
        """Its free virtual cells."""
        return max(0, self.quota.get((vc, level), 0) - len(self.mine.get((vc, level), ())))

    def set_quota(self, vc: Owner, level: int, count: int) -> None:
        before = self.free_of(vc, level)
        self.reserved[level] += count - self.quota.pop((vc, level), 0)
        if count:
            self.quota[vc, level] = count
        self.claims[level] += self.free_of(vc, level) - before

    def bind(self, vc: Owner, level: int, index: int) -> None:
        cells = self.mine.setdefault((vc, level), set())
        cells.add(index)
        self.allocated[level] += 1
        if len(cells) <= self.quota.get((vc, level), 0):
            self.claims[level] -= 1

    def unbind(self, vc: Owner, level: int, index: int) -> None:
        cells = self.mine[vc, level]
        if len(cells) <= self.quota.get((vc, level), 0):
            self.claims[level] += 1
        cells.remove(index)
        self.allocated[level] -= 1
        if not cells:
            del self.mine[vc, level]
