"""What of a virtual cluster's bound cells a job can have, while a search gives one task after the other its place."""

from collections.abc import Iterator
from typing import NamedTuple

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.values import Mask
from scheduler_service.core.vc import Owner


class Domain(NamedTuple):
    """Part of a pool: nodes one after the other, and positions on them."""

    slots: range
    mask: Mask


class Reach:
    """`gone`: leaves by slot that count as available although guaranteed runs hold them. `several`: whether the job has several
    tasks, which are to be near each other."""

    __slots__ = ("_around", "_gone", "_owner", "_pool", "_several", "taken")

    def __init__(self, pool: Pool, owner: Owner, gone: dict[int, Mask], several: bool) -> None:
        self._pool, self._owner, self._gone, self._several = pool, owner, gone, several
        self.taken: dict[int, Mask] = {}
        """Slot -> what tasks have that have their place."""
        self._around: dict[tuple[int, int], int] = {}
        """(level, index) of a cell, a node or larger -> how many tasks are in it, if there are several."""

    def available(self, slot: int, mask: Mask) -> Mask:
        free = self._pool.available(slot, mask) | self._gone.get(slot, 0) & mask & self._pool.healthy(slot)
        return free & ~self.taken.get(slot, 0)

    def tightest(self, leaves: int, domain: Domain | None) -> Iterator[tuple[int, Mask]]:
        """Of the units with so many leaves available, the tightest first, and the nearest of these: slot and what is available
        there."""
        if domain is None and not self.taken and not self._gone:
            for unit in self._pool.fitting(self._owner, leaves):
                yield unit.slot, self._pool.available(unit.slot, unit.mask)
            return
        found = []
        for slot, mask in self.units(domain):
            available = self.available(slot, mask)
            if available.bit_count() >= leaves:
                found.append((available.bit_count(), self.distance(slot), slot, available))
        for _, _, slot, available in sorted(found):
            yield slot, available

    def units(self, domain: Domain | None) -> Iterator[tuple[int, Mask]]:
        """Slot and positions of all units in which something may be available, or of what of them is in a part of the pool."""
        if domain is not None:
            for slot in domain.slots:
                for mask, owner in self._pool.units_at(slot).items():
                    if owner == self._owner and mask & domain.mask:
                        yield slot, mask & domain.mask
            return
        for unit in list(self._pool.units(self._owner)):
            yield unit.slot, unit.mask
        listed = {(unit.slot, unit.mask) for unit in self._pool.units(self._owner)} if self._gone else set()
        for slot in self._gone:
            for mask, owner in self._pool.units_at(slot).items():
                if owner == self._owner and (slot, mask) not in listed:
                    yield slot, mask

    def stands(self, slot: int, more: int) -> None:
        """So many more tasks of the job are on the node."""
        if self._several:
            for cell in self._cells_around(slot):
                self._around[cell] = self._around.get(cell, 0) + more

    def distance(self, slot: int) -> int:
        """How many levels up the cell is that holds this node and the nearest of those with a task of the job."""
        return next((cell[0] for cell in self._cells_around(slot) if self._around.get(cell)), len(self._pool.shape.fan))

    def _cells_around(self, slot: int) -> Iterator[tuple[int, int]]:
        """The node, and the cells that it is in: level and index."""
        fan, index = self._pool.shape.fan, slot
        for level in range(self._pool.shape.node, len(fan)):
            if level > self._pool.shape.node:
                index //= fan[level]
            yield level, index
