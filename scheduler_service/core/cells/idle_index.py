"""Where opportunistic work may go: idle leaves by node, outside bindings and inside them.

Kept lazily: nodes that changed are looked at again when somebody asks, since a binding that is at once filled changes
nothing here in the end.
"""

from collections.abc import Sequence

from sortedcontainers import SortedList

from scheduler_service.core.cells.shape import Shape, parts
from scheduler_service.core.cells.slots import Facts


class IdleIndex:
    __slots__ = ("_devices", "_facts", "_inside", "_keys", "_outside", "_shape", "_sizes", "_wholes", "stale")

    def __init__(self, facts: Facts, shape: Shape) -> None:
        self._facts = facts
        self._shape = shape
        self._devices = shape.devices
        self._outside: SortedList = SortedList()
        """(0 with opportunistic work or 1 without, idle leaves under no binding, -slot)."""
        self._inside: SortedList = SortedList()
        """(idle leaves, slot) of slots that have some under a binding."""
        self._wholes: list[SortedList] = [SortedList() for _ in range(shape.node + 1)]
        """Slots, by the level of the largest cell of which all leaves are idle."""
        self._sizes = [0] * (shape.devices + 1)
        """How many nodes have 1, 2, ... idle leaves, by number; that of nodes without any says nothing."""
        self._keys: dict[int, _Keys] = {}
        self.stale: set[int] = set()
        """Slots of which something changed since the lists were last looked at."""

    def refresh(self) -> None:
        facts, keys = self._facts, self._keys
        for slot in self.stale:
            here = facts[slot]
            idle, bound = here.idle(), here.bound
            count = (idle & ~bound).bit_count()
            outside = (0 if here.opportunistic else 1, count, -slot) if count else None
            inside = (idle.bit_count(), slot) if idle & bound else None
            largest = parts(self._shape, idle)[-1].level if idle else None
            before, total = keys.get(slot, _NONE), idle.bit_count()
            if before[3] != total:
                self._sizes[before[3]] -= 1
                self._sizes[total] += 1
            if before[0] != outside:
                _replace(self._outside, before[0], outside)
            if before[1] != inside:
                _replace(self._inside, before[1], inside)
            if before[2] != largest:
                if before[2] is not None:
                    self._wholes[before[2]].remove(slot)
                if largest is not None:
                    self._wholes[largest].add(slot)
            if largest is not None:
                keys[slot] = (outside, inside, largest, total)
            else:
                keys.pop(slot, None)
        self.stale.clear()

    def dirty(self, n: int) -> int | None:
        """Of the nodes with opportunistic work, the one with the fewest idle leaves outside bindings that suffice."""
        return self._tightest(0, n)

    def clean(self, n: int) -> int | None:
        """The same of nodes without any."""
        return self._tightest(1, n)

    def _tightest(self, kind: int, n: int) -> int | None:
        self.refresh()
        at = self._outside.bisect_left((kind, n))
        return -self._outside[at][2] if at < len(self._outside) and self._outside[at][0] == kind else None

    def bound(self, n: int) -> int | None:
        """The node with the fewest idle leaves that suffice, some of them under bindings."""
        self.refresh()
        at = self._inside.bisect_left((n,))
        return self._inside[at][1] if at < len(self._inside) else None

    def sizes(self) -> Sequence[int]:
        """How many nodes have 1, 2, ... idle leaves, by number; that of nodes without any says nothing."""
        self.refresh()
        return self._sizes

    def last_whole(self, level: int) -> int | None:
        """The last node on which all leaves of some cell of the level are idle."""
        self.refresh()
        return max((slots[-1] for slots in self._wholes[level:] if slots), default=None)

    def first_clean(self, slots: range) -> int | None:
        """The first node of these that is wholly idle and outside bindings."""
        self.refresh()
        at = self._outside.bisect_right((1, self._devices, -slots.start)) - 1
        return self._clean_among(at, slots)

    def last_clean(self, slots: range) -> int | None:
        self.refresh()
        return self._clean_among(self._outside.bisect_left((1, self._devices, 1 - slots.stop)), slots)

    def _clean_among(self, at: int, slots: range) -> int | None:
        if not 0 <= at < len(self._outside):
            return None
        kind, count, negative = self._outside[at]
        return -negative if kind == 1 and count == self._devices and -negative in slots else None

    def snapshot(self) -> tuple[object, ...]:
        self.refresh()
        wholes, sizes = [list(slots) for slots in self._wholes], tuple(self._sizes[1:])
        return list(self._outside), list(self._inside), wholes, dict(self._keys), sizes


_Keys = tuple[tuple[int, int, int] | None, tuple[int, int] | None, int | None, int]
"""Where a slot stands in each of the lists, and how many idle leaves it has."""
_NONE: _Keys = (None, None, None, 0)


def _replace(ordered: SortedList, old: tuple[int, ...] | None, new: tuple[int, ...] | None) -> None:
    if old is not None:
        ordered.remove(old)
    if new is not None:
        ordered.add(new)
