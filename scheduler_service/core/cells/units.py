"""Where a VC can place guaranteed work: the parts of its bound cells, node by node.

A unit is a bound cell inside a node, or what lies on one node of a larger one. Available are its healthy leaves that no
guaranteed run holds; opportunistic runs do not count, for they go.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sortedcontainers import SortedList

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
    __slots__ = ("_at", "_lists")

    def __init__(self) -> None:
        self._lists: dict[Owner, SortedList] = {}
        """VC -> its units of which something is available."""
        self._at: dict[int, dict[Mask, Owner]] = {}
        """Slot -> mask -> VC, of every unit."""

    def of(self, vc: Owner) -> Sequence[Unit]:
        units: Sequence[Unit] = self._lists.get(vc, ())
        return units

    def at(self, slot: int) -> dict[Mask, Owner]:
        """mask -> VC: all units of the node, in no order."""
        return self._at.get(slot, {})

    def fitting(self, vc: Owner, n: int) -> Iterator[Unit]:
        """Those that have `n` leaves available, tightest first."""
        units = self._lists.get(vc)
        return units.irange((n,)) if units is not None else iter(())

    def add(self, vc: Owner, slot: int, mask: Mask, usable: Mask) -> None:
        self._at.setdefault(slot, {})[mask] = vc
        self._enter(vc, slot, mask, usable)

    def remove(self, vc: Owner, slot: int, mask: Mask, usable: Mask) -> None:
        here = self._at[slot]
        del here[mask]
        if not here:
            del self._at[slot]
        self._leave(vc, slot, mask, usable)

    def change(self, slot: int, old: Mask, new: Mask) -> None:
        """The leaves of the node that are healthy and in no guaranteed run's hands are others than before."""
        changed = old ^ new
        for mask, vc in self._at.get(slot, {}).items():
            if mask & changed:
                self._leave(vc, slot, mask, old)
                self._enter(vc, slot, mask, new)

    def _enter(self, vc: Owner, slot: int, mask: Mask, usable: Mask) -> None:
        if usable & mask:
            units = self._lists.get(vc)
            if units is None:
                units = self._lists[vc] = SortedList()
            units.add(_new(Unit, ((usable & mask).bit_count(), slot, mask)))

    def _leave(self, vc: Owner, slot: int, mask: Mask, usable: Mask) -> None:
        if usable & mask:
            units = self._lists[vc]
            units.remove(((usable & mask).bit_count(), slot, mask))
            if not units:
                del self._lists[vc]

    def snapshot(self) -> tuple[object, ...]:
        return {vc: list(units) for vc, units in self._lists.items()}, {slot: dict(here) for slot, here in self._at.items()}
