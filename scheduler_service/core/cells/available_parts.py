"""Parts of a VC's bound cells, node by node, where it can place guaranteed work.

A unit is a bound cell inside a node, or the part of a larger one on one node. Available are its healthy leaves that no
guaranteed run holds; opportunistic runs do not count, as they can be made to leave.

Updated lazily: nodes that changed are looked at again when the lists are read. A cell that is bound and immediately filled
never enters a list.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence, Set

from scheduler_service.core.cells.slots import Facts, Slot, Unit
from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask

_new = tuple.__new__


class OwnedParts:
    __slots__ = ("_devices", "_facts", "_hosts", "_lists", "_sizes", "_visited", "stale")

    def __init__(self, facts: Facts, devices: int) -> None:
        """`devices`: how many a node has."""
        self._facts = facts
        self._devices = devices
        self._lists: dict[Owner, list[Unit]] = {}
        """VC -> its units with available leaves, in order. They are few, as cells are released with their last run: an
        insertion moves everything behind it in one go."""
        self._sizes: dict[Owner, list[int]] = {}
        """VC -> how many of its units have 0, 1, 2, ... available leaves."""
        self._visited: dict[Owner, set[int]] = {}
        """VC -> the slots on which opportunistic runs hold leaves of its units."""
        self._hosts: dict[int, set[Owner]] = {}
        """Slot -> the VCs of which opportunistic runs hold leaves there."""
        self.stale: set[int] = set()
        """Slots that have changed since the lists were last read."""

    def parts_of(self, vc: Owner) -> Sequence[Unit]:
        if self.stale:
            self._refresh()
        return self._lists.get(vc, ())

    def fitting(self, vc: Owner, n: int) -> Iterator[Unit]:
        """The VC's units that have `n` leaves available, the tightest first."""
        if self.stale:
            self._refresh()
        units = self._lists.get(vc, ())
        return (units[at] for at in range(bisect_left(units, (n,)), len(units)))

    def first_from(self, vc: Owner, least: tuple[int, ...]) -> Unit | None:
        """The first unit that does not come before `least`, in the order of units."""
        if self.stale:
            self._refresh()
        units = self._lists.get(vc, ())
        at = bisect_left(units, least)
        return units[at] if at < len(units) else None

    def sizes(self, vc: Owner) -> Sequence[int]:
        """How many of its units have 0, 1, 2, ... available leaves."""
        if self.stale:
            self._refresh()
        return self._sizes.get(vc, ())

    def visited_nodes(self, vc: Owner) -> Set[int]:
        if self.stale:
            self._refresh()
        return self._visited.get(vc, _NOWHERE)

    def add(self, vc: Owner, slot: int, mask: Mask) -> None:
        here = self._facts[slot]
        if here.units:
            here.units[mask] = vc
        else:
            here.units = {mask: vc}
        self.stale.add(slot)

    def remove(self, slot: int, mask: Mask) -> None:
        del self._facts[slot].units[mask]
        self.stale.add(slot)

    def _refresh(self) -> None:
        for slot in self.stale:
            here, now = self._facts[slot], []
            usable = here.healthy & ~here.guaranteed
            for mask, vc in here.units.items():
                if usable & mask:
                    now.append((vc, _new(Unit, ((usable & mask).bit_count(), slot, mask))))
            if now != here.listed:
                self._list(here.listed, now)
                here.listed = now
            if here.opportunistic or slot in self._hosts:
                self._visit(slot, here)
        self.stale.clear()

    def _list(self, before: list[tuple[Owner, Unit]], now: list[tuple[Owner, Unit]]) -> None:
        for vc, unit in before:
            if (vc, unit) not in now:
                units = self._lists[vc]
                del units[bisect_left(units, unit)]
                self._sizes[vc][unit[0]] -= 1
        for vc, unit in now:
            if (vc, unit) not in before:
                if vc not in self._lists:
                    self._lists[vc], self._sizes[vc] = [], [0] * (self._devices + 1)
                insort(self._lists[vc], unit)
                self._sizes[vc][unit[0]] += 1

    def _visit(self, slot: int, here: Slot) -> None:
        opportunistic, before = here.opportunistic, self._hosts.pop(slot, None)
        if before is not None:
            for vc in before:
                self._visited[vc].discard(slot)
        if opportunistic and (hosts := {vc for mask, vc in here.units.items() if mask & opportunistic}):
            self._hosts[slot] = hosts
            for vc in hosts:
                self._visited.setdefault(vc, set()).add(slot)

    def snapshot(self) -> tuple[object, ...]:
        if self.stale:
            self._refresh()
        lists = {vc: list(units) for vc, units in self._lists.items() if units}
        listed = {slot: sorted(here.listed) for slot, here in self._facts.items() if here.listed}
        visited = {vc: set(slots) for vc, slots in self._visited.items() if slots}
        sizes = {vc: tuple(counts) for vc, counts in self._sizes.items() if any(counts)}
        return lists, listed, visited, sizes, {slot: dict(here.units) for slot, here in self._facts.items() if here.units}


_NOWHERE: Set[int] = frozenset()
