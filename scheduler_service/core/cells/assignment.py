"""Whether a cluster can keep what it promises its VCs (HiveD: a feasible assignment).

A pinned cell is bound from the beginning and never released. So it is left out of both sides here: out of what is available,
with everything it splits, and out of the quotas. (In a `Pool` it is on both sides: its binding counts in a_{t,k}, and the
quota that is set there counts it in r_{t,k}.)
"""

from collections.abc import Mapping
from typing import NamedTuple

from scheduler_service.core.cells.promises import balance
from scheduler_service.core.cells.shape import Shape


class Shortfall(NamedTuple):
    level: int
    missing: int


def feasible(available: Mapping[int, int], shape: Shape, quotas: Mapping[int, int]) -> Shortfall | None:
    """The highest level at which the quotas, of all VCs together, are not met, and how many cells are missing there.

    >>> feasible({1: 3}, Shape(("device", "node"), (1, 2), 1), {1: 2, 0: 3})
    Shortfall(level=0, missing=1)
    """
    levels = range(len(shape.fan))
    missing = balance([available.get(k, 0) for k in levels], [quotas.get(k, 0) for k in levels], shape.fan).missing
    return next((Shortfall(level, missing[level]) for level in reversed(levels) if missing[level]), None)
