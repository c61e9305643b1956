"""Index of idle leaves by node, outside bindings and inside them: where opportunistic work may go.

Updated lazily: nodes that changed are looked at again when the index is read, since a binding that is filled immediately
changes nothing here in the end.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from scheduler_service.core.cells.node_masks import parts
from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.cells.slots import Facts, Slot

_SLOT = 48
"""How many bits of a key are the slot's: one number is compared at a third of what a tuple costs."""
_LAST = (1 << _SLOT) - 1
_CLEAN = 1 << 24
"""Added to the idle leaves of a slot without opportunistic work."""


class IdleIndex:
    """Its lists are plain ones, at most as long as there are nodes: an insertion moves everything behind it in one go."""

    __slots__ = ("_devices", "_facts", "_inside", "_keys", "_outside", "_shape", "_sizes", "_wholes", "stale")

    def __init__(self, facts: Facts, shape: Shape) -> None:
        self._facts = facts
        self._shape = shape
        self._devices = shape.devices
        self._outside: list[int] = []
        """Keys of slots that have idle leaves under no binding: those with opportunistic work first, then by the number
        of such leaves, and of equals the last slot first."""
        self._inside: list[int] = []
        """Keys of slots that have idle leaves, some of them under a binding: by the number of idle leaves, then by slot."""
        self._wholes: list[list[int]] = [[] for _ in range(shape.node + 1)]
        """Slots, by the level of the largest cell of which all leaves are idle."""
        self._sizes = [0] * (shape.devices + 1)
        """How many nodes have 1, 2, ... idle leaves; the entry for none means nothing."""
        self._keys: dict[int, _Keys] = {}
        self.stale: set[int] = set()
        """Slots that have changed since the lists were last read."""

    def refresh(self) -> None:
        facts, keys, shape = self._facts, self._keys, self._shape
        outside, inside, wholes, sizes = self._outside, self._inside, self._wholes, self._sizes
        for slot in self.stale:
            here, old = facts[slot], keys.get(slot, _NONE)
            new = _keys_of(shape, slot, here)
            if old == new:
                continue
            keys[slot] = new
            (old_outside, old_inside, old_level, old_count), (new_outside, new_inside, new_level, new_count) = old, new
            if old_outside != new_outside:
                if old_outside >= 0:
                    del outside[bisect_left(outside, old_outside)]
                if new_outside >= 0:
                    insort(outside, new_outside)
            if old_inside != new_inside:
                if old_inside >= 0:
                    del inside[bisect_left(inside, old_inside)]
                if new_inside >= 0:
                    insort(inside, new_inside)
            if old_level != new_level:
                if old_level >= 0:
                    del wholes[old_level][bisect_left(wholes[old_level], slot)]
                if new_level >= 0:
                    insort(wholes[new_level], slot)
            if old_count != new_count:
                sizes[old_count] -= 1
                sizes[new_count] += 1
        self.stale.clear()

    def find_dirty(self, n: int) -> int | None:
        """The node with opportunistic work that has the fewest idle leaves outside bindings that suffice."""
        return self._tightest(0, n)

    def clean(self, n: int) -> int | None:
        """The same for nodes without opportunistic work."""
        return self._tightest(_CLEAN, n)

    def _tightest(self, kind: int, n: int) -> int | None:
        """`kind`: 0 with opportunistic work, or _CLEAN."""
        if self.stale:
            self.refresh()
        at = bisect_left(self._outside, kind + n << _SLOT)
        if at == len(self._outside):
            return None
        key = self._outside[at]
        return _LAST - (key & _LAST) if key >> _SLOT < kind + _CLEAN else None

    def find_bound(self, n: int) -> int | None:
        """The node with the fewest idle leaves that suffice, some of them under bindings."""
        if self.stale:
            self.refresh()
        at = bisect_left(self._inside, n << _SLOT)
        return self._inside[at] & _LAST if at < len(self._inside) else None

    def sizes(self) -> Sequence[int]:
        """How many nodes have 1, 2, ... idle leaves; the entry for none means nothing."""
        self.refresh()
        return self._sizes

    def last_whole(self, level: int) -> int | None:
        """The last node on which all leaves of some cell of the level are idle."""
        self.refresh()
        return max((slots[-1] for slots in self._wholes[level:] if slots), default=None)

    def first_clean(self, slots: range) -> int | None:
        """The first node of these that is wholly idle and outside bindings."""
        self.refresh()
        return self._clean_among(bisect_right(self._outside, self._whole_key(slots.start)) - 1, slots)

    def last_clean(self, slots: range) -> int | None:
        self.refresh()
        return self._clean_among(bisect_left(self._outside, self._whole_key(slots.stop - 1)), slots)

    def _whole_key(self, slot: int) -> int:
        """The key of a slot that is wholly idle and outside bindings."""
        return _CLEAN + self._devices << _SLOT | _LAST - slot

    def _clean_among(self, at: int, slots: range) -> int | None:
        if not 0 <= at < len(self._outside):
            return None
        slot = _LAST - (self._outside[at] & _LAST)
        return slot if slot in slots and self._outside[at] == self._whole_key(slot) else None

    def snapshot(self) -> tuple[object, ...]:
        self.refresh()
        wholes, sizes = [list(slots) for slots in self._wholes], tuple(self._sizes[1:])
        keys = {slot: keys for slot, keys in self._keys.items() if keys != _NONE}
        return list(self._outside), list(self._inside), wholes, keys, sizes


_Keys = tuple[int, int, int, int]
"""The keys of a slot outside and inside bindings, its level among whole cells (-1: it is in no such list), and how many idle
leaves it has."""
_NONE: _Keys = (-1, -1, -1, 0)


def _keys_of(shape: Shape, slot: int, here: Slot) -> _Keys:
    idle = here.healthy & ~(here.guaranteed | here.opportunistic)
    if not idle:
        return _NONE
    count, bound, level = idle.bit_count(), idle & here.bound, parts(shape, idle)[-1].level
    if not bound:
        return (count if here.opportunistic else _CLEAN + count) << _SLOT | _LAST - slot, -1, level, count
    outside, inside = (idle & ~bound).bit_count(), count << _SLOT | slot
    if not outside:
        return -1, inside, level, count
    return (outside if here.opportunistic else _CLEAN + outside) << _SLOT | _LAST - slot, inside, level, count
