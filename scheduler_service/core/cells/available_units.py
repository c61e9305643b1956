"""Units of a virtual cluster's bound cells, in the order in which a task of a job tries them: the tightest first.

The pool lists the units of an owner by their available leaves. It does not know of the leaves that tasks of the job have taken
while the job is placed, nor of leaves that count as available although guaranteed runs hold them.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

from scheduler_service.core.cells.placed_tasks import Tasks
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask


class Domain(NamedTuple):
    """Part of a pool: consecutive nodes, and positions on them."""

    slots: range
    mask: Mask


_Unit = tuple[int, int, int, Mask]
"""How many leaves are available, how far they are from the job's other tasks, their slot, and which they are. A task tries
places in this order."""


class AvailableUnits:
    """The units of an owner, for one job. `gone`: leaves by slot that count as available although guaranteed runs hold them."""

    __slots__ = ("_gone", "_owner", "_pool", "_several", "_tasks", "taken")

    def __init__(self, pool: Pool, owner: Owner, gone: Mapping[int, Mask], several: bool) -> None:
        """`several`: whether the job has several tasks, so that it matters how near to each other they are."""
        self._pool, self._owner, self._gone, self._several = pool, owner, gone, several
        self._tasks = Tasks(pool.shape)
        self.taken: dict[int, Mask] = {}
        """Leaves of tasks that have a place, by slot."""

    def take_leaves(self, slot: int, mask: Mask) -> None:
        """A task gets these leaves."""
        self.taken[slot] = self.taken.get(slot, 0) | mask
        if self._several:
            self._tasks.put(slot, 1)

    def put_back(self, slot: int, mask: Mask) -> None:
        """Takes exactly these leaves from the task that had them."""
        left = self.taken.pop(slot) & ~mask
        if left:
            self.taken[slot] = left
        if self._several:
            self._tasks.put(slot, -1)

    def available(self, slot: int, mask: Mask) -> Mask:
        """Those of these leaves that a task may have."""
        free = self._pool.available(slot, mask)
        if self._gone:
            free |= self._gone.get(slot, 0) & mask & self._pool.healthy(slot)
        return free & ~self.taken.get(slot, 0)

    def distance(self, slot: int) -> int:
        """How far the node is from the tasks that have a place (`Tasks.distance`)."""
        return self._tasks.distance(slot)

    def sizes(self) -> Sequence[int]:
        """How many units there are with 0, 1, 2, ... available leaves."""
        if not self._gone:
            return self._pool.unit_sizes(self._owner)
        sizes = [0] * (self._pool.shape.devices + 1)
        for slot, mask in self.all():
            sizes[self.available(slot, mask).bit_count()] += 1
        return sizes

    def all(self) -> Iterator[tuple[int, Mask]]:
        """Slot and positions of each unit, in no particular order."""
        for unit in list(self._pool.units(self._owner)):
            yield unit.slot, unit.mask
        listed = {(unit.slot, unit.mask) for unit in self._pool.units(self._owner)} if self._gone else set()
        for slot in self._gone:
            for mask, owner in self._pool.units_at(slot).items():
                if owner == self._owner and (slot, mask) not in listed:
                    yield slot, mask

    def parts_inside(self, domain: Domain) -> Iterator[tuple[int, Mask]]:
        """Slot and positions of the parts of units in the domain."""
        for slot in domain.slots:
            for mask, owner in self._pool.units_at(slot).items():
                if owner == self._owner and mask & domain.mask:
                    yield slot, mask & domain.mask

    def tightest(self, leaves: int, domain: Domain | None) -> Iterator[tuple[int, Mask]]:
        """Slot and available leaves of each unit, or part of one in the domain, that has at least this many: the tightest
        first, among equals the nearest to the job's other tasks, then by slot."""
        if domain is not None:
            yield from self._tightest_in(leaves, domain)
        elif not self._several and not self._gone:
            for unit in self._pool.fitting(self._owner, leaves):
                yield unit.slot, self._pool.available(unit.slot, unit.mask)
        else:
            for _, _, slot, available in merge(sorted(self._altered_units(leaves)), self._listed_units(leaves)):
                yield slot, available

    def _tightest_in(self, leaves: int, domain: Domain) -> Iterator[tuple[int, Mask]]:
        found = []
        for slot in domain.slots:
            for mask, owner in self._pool.units_at(slot).items():
                available = self.available(slot, mask & domain.mask) if owner == self._owner else 0
                if available.bit_count() >= leaves:
                    found.append((available.bit_count(), self._tasks.distance(slot), slot, available))
        for _, _, slot, available in sorted(found):
            yield slot, available

    def _altered_units(self, leaves: int) -> Iterator[_Unit]:
        """Units on nodes where leaves are taken, or count as available though held: the lists do not know of that."""
        for slot in {**self.taken, **self._gone}:
            for mask, owner in self._pool.units_at(slot).items():
                if owner == self._owner:
                    available = self.available(slot, mask)
                    if (count := available.bit_count()) >= leaves:
                        yield count, self._tasks.distance(slot), slot, available

    def _listed_units(self, least: int) -> Iterator[_Unit]:
        """All other units, in the order of the lists. Each is looked up when it is asked for, since cells may have been bound
        and unbound since the one before it."""
        pool, me = self._pool, self._owner
        unit = pool.unit_from(me, (least,))
        while unit is not None:
            count = unit.available
            for distance, slots in self._tasks.rings():
                unit = pool.unit_from(me, (count, slots.start))
                while unit is not None and unit.available == count and unit.slot < slots.stop:
                    if unit.slot not in self.taken and unit.slot not in self._gone:
                        yield count, distance, unit.slot, pool.available(unit.slot, unit.mask)
                    unit = pool.unit_from(me, (*unit, 0))
            unit = pool.unit_from(me, (count + 1,))
