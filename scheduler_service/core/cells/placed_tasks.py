"""The tasks of a job that have a place already, and which nodes are near them."""

import sys
from collections.abc import Iterable, Iterator

from scheduler_service.core.cells.shape import Shape

_EVERYWHERE = range(-sys.maxsize, sys.maxsize)


class Tasks:
    """How many of these tasks are in each cell, from the level of nodes up."""

    __slots__ = ("_in", "_shape")

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._in: list[dict[int, int]] = []
        """Index -> tasks in the cell, by level; empty until a task has a place."""

    def put(self, slot: int, more: int) -> None:
        """Adds tasks to this node; negative: removes some."""
        if not self._in:
            self._in = [{} for _ in self._shape.fan]
        for level, index in self._cells_around(slot):
            count = self._in[level].pop(index, 0) + more
            if count:
                self._in[level][index] = count

    def distance(self, slot: int) -> int:
        """The level of the smallest cell that holds this node and one of the tasks; one more than the top if none does."""
        within = self._in
        return next(
            (level for level, index in self._cells_around(slot) if within and index in within[level]), len(self._shape.fan)
        )

    def rings(self) -> Iterator[tuple[int, range]]:
        """All nodes by their distance, the nearest first, and in order of their slots. The nodes that have tasks are among
        their neighbors."""
        shape, nearer = self._shape, list[range]()
        for level in range(shape.node + 1, len(shape.fan)) if self._in else ():
            nodes = shape.size(level) // shape.devices
            cells = [range(index * nodes, (index + 1) * nodes) for index in sorted(self._in[level])]
            yield from ((level, slots) for slots in _parts_between(cells, nearer))
            nearer = cells
        yield from ((len(shape.fan), slots) for slots in _parts_between([_EVERYWHERE], nearer))

    def _cells_around(self, slot: int) -> Iterator[tuple[int, int]]:
        """The node, and the cells that it is in: level and index."""
        fan, index = self._shape.fan, slot
        for level in range(self._shape.node, len(fan)):
            if level > self._shape.node:
                index //= fan[level]
            yield level, index


def _parts_between(cells: Iterable[range], holes: Iterable[range]) -> Iterator[range]:
    """Parts of the cells that are in no hole; both are in order, and each hole is inside one cell."""
    left = iter(holes)
    hole = next(left, None)
    for cell in cells:
        at = cell.start
        while hole is not None and hole.start < cell.stop:
            yield range(at, hole.start)
            at, hole = hole.stop, next(left, None)
        yield range(at, cell.stop)
