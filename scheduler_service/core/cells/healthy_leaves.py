"""How many leaves of each cell are healthy and open for placement, from the level of nodes up."""

from scheduler_service.core.cells.shape import Shape


class HealthyLeaves:
    """Counts kept up as nodes change, so that a cell of any size is known to be whole or not without looking at its nodes."""

    __slots__ = ("_shape", "counts", "partly")

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.counts: list[dict[int, int]] = [{} for _ in shape.fan]
        """Index -> healthy leaves, by level; a cell that has none is not there."""
        self.partly: list[set[int]] = [set() for _ in shape.fan]
        """Cells that have healthy leaves and others, by level."""

    def add(self, slot: int, more: int) -> None:
        """Adds healthy leaves to the node; negative: removes some."""
        index = slot
        for level in range(self._shape.node, len(self._shape.fan)):
            if level != self._shape.node:
                index //= self._shape.fan[level]
            count = self.counts[level].pop(index, 0) + more
            if count:
                self.counts[level][index] = count
            if 0 < count < self._shape.size(level):
                self.partly[level].add(index)
            else:
                self.partly[level].discard(index)
