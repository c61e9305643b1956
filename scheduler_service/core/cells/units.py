"""Where a VC can place guaranteed work: the parts of its bound cells, node by node.

A unit is a bound cell inside a node, or what lies on one node of a larger one. Available are its healthy leaves that no
guaranteed run holds; opportunistic runs do not count, for they go.

Kept lazily: nodes that changed are looked at again when somebody asks. A cell that is bound and at once filled never
enters a list.
"""

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from sortedcontainers import SortedList

from scheduler_service.core.cells.spare import Facts
from scheduler_service.core.values import Mask
from scheduler_service.core.vc import Owner


class Unit(NamedTuple):
    available: int
    """How many leaves of it are available; in order of this, then of the address."""
    slot: int
    mask: Mask
    """All its positions."""


_new = tuple.__new__


class Units:
    __slots__ = ("_facts", "_hosts", "_listed", "_lists", "_visited", "at", "stale")

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._lists: dict[Owner, SortedList] = {}
        """VC -> its units of which something is available."""
        self._listed: dict[int, list[tuple[Owner, Unit]]] = {}
        """Slot -> (VC, unit) as the lists have them."""
        self._visited: dict[Owner, set[int]] = {}
        """VC -> the slots on which opportunistic runs hold leaves of its units."""
        self._hosts: dict[int, set[Owner]] = {}
        """The same the other way round."""
        self.at: dict[int, dict[Mask, Owner]] = {}
        """Slot -> mask -> VC, of every unit."""
        self.stale: set[int] = set()
        """Slots of which something changed since the lists were last looked at."""

    def of(self, vc: Owner) -> Sequence[Unit]:
        if self.stale:
            self._refresh()
        units: Sequence[Unit] = self._lists.get(vc, ())
        return units

    def fitting(self, vc: Owner, n: int) -> Iterator[Unit]:
        """Those that have `n` leaves available, tightest first."""
        if self.stale:
            self._refresh()
        units = self._lists.get(vc)
        return units.irange((n,)) if units is not None else iter(())

    def visited(self, vc: Owner) -> Set[int]:
        if self.stale:
            self._refresh()
        return self._visited.get(vc, _NOWHERE)

    def add(self, vc: Owner, slot: int, mask: Mask) -> None:
        here = self.at.get(slot)
        if here is None:
            self.at[slot] = {mask: vc}
        else:
            here[mask] = vc
        self.stale.add(slot)

    def remove(self, slot: int, mask: Mask) -> None:
        here = self.at[slot]
        del here[mask]
        if not here:
            del self.at[slot]
        self.stale.add(slot)

    def _refresh(self) -> None:
        healthy, guaranteed, opportunistic = self._facts.healthy, self._facts.guaranteed, self._facts.opportunistic
        for slot in self.stale:
            here, now = self.at.get(slot), []
            if here is not None:
                usable = healthy.get(slot, 0) & ~guaranteed.get(slot, 0)
                for mask, vc in here.items():
                    if usable & mask:
                        now.append((vc, _new(Unit, ((usable & mask).bit_count(), slot, mask))))
            before = self._listed.get(slot, _UNLISTED)
            if before != now:
                self._list(slot, before, now)
            if slot in self._hosts or slot in opportunistic:
                self._visit(slot)
        self.stale.clear()

    def _list(self, slot: int, before: list[tuple[Owner, Unit]], now: list[tuple[Owner, Unit]]) -> None:
        if now:
            self._listed[slot] = now
        else:
            del self._listed[slot]
        for vc, unit in before:
            if (vc, unit) not in now:
                self._lists[vc].remove(unit)
        for vc, unit in now:
            if (vc, unit) not in before:
                if vc not in self._lists:
                    self._lists[vc] = SortedList()
                self._lists[vc].add(unit)

    def _visit(self, slot: int) -> None:
        guests, before = self._facts.opportunistic.get(slot, 0), self._hosts.pop(slot, None)
        if before is not None:
            for vc in before:
                self._visited[vc].discard(slot)
        if guests and (hosts := {vc for mask, vc in self.at.get(slot, _NOTHING).items() if mask & guests}):
            self._hosts[slot] = hosts
            for vc in hosts:
                self._visited.setdefault(vc, set()).add(slot)

    def snapshot(self) -> tuple[object, ...]:
        if self.stale:
            self._refresh()
        lists = {vc: list(units) for vc, units in self._lists.items() if units}
        listed = {slot: sorted(units) for slot, units in self._listed.items()}
        visited = {vc: set(slots) for vc, slots in self._visited.items() if slots}
        return lists, listed, visited, {slot: dict(here) for slot, here in self.at.items()}


_NOTHING: dict[Mask, Owner] = {}
_UNLISTED: list[tuple[Owner, Unit]] = []
_NOWHERE: Set[int] = frozenset()
"""What is without any has these. Nobody writes to them."""
