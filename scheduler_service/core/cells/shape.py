"""The tree of a pool: its levels, and the positions of cells inside nodes.

A pool is uniform: a level and a number name a cell, and its parent is `index // fan`. Inside a node a *position* is the
place of a device in the order of the tree, so that a cell is a run of neighboring bits.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from scheduler_service.core.model.values import Mask

KNOWN = 65536
"""Results that a function of masks remembers: nodes are alike, and the same few masks come again and again."""


class Shape(NamedTuple):
    """The levels from the innermost outwards, and how many cells of the level below make up a cell of each.

    >>> p100 = Shape(("device", "switch", "socket", "node", "rack"), (1, 2, 2, 2, 4), 3)
    >>> p100.devices, p100.size(4)
    (8, 32)
    """

    levels: tuple[str, ...]
    fan: tuple[int, ...]
    node: int
    """The level of nodes."""

    def size(self, level: int) -> int:
        """Leaves in a cell of the level."""
        return _sizes(self.fan)[level]

    @property
    def devices(self) -> int:
        """Leaves in a node."""
        return self.size(self.node)

    @property
    def top(self) -> int:
        return len(self.fan) - 1


def level_of(shape: Shape, name: str) -> int | None:
    """The number of the level with this name."""
    return shape.levels.index(name) if name in shape.levels else None


@lru_cache(maxsize=256)
def _sizes(fan: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(accumulate(fan, mul))


@lru_cache(maxsize=KNOWN)
def cell_mask(shape: Shape, level: int, index: int) -> Mask:
    """The positions of a cell inside a node."""
    size = shape.size(level)
    return (1 << size) - 1 << index * size


def leaves(shape: Shape, level: int, index: int) -> Sequence[tuple[int, Mask]]:
    """(slot, positions) of a cell of the pool, for each of its nodes."""
    if level < shape.node:
        slot, cell = divmod(index, shape.devices // shape.size(level))
        return ((slot, cell_mask(shape, level, cell)),)
    nodes, full = shape.size(level) // shape.devices, (1 << shape.devices) - 1
    return [(slot, full) for slot in range(index * nodes, (index + 1) * nodes)]
