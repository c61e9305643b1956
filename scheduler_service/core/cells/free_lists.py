"""Algorithm 1's free lists (HiveD, section 3.1) as a function of what is open.

The algorithm splits and merges so that free cells are always as high as they will go. So a cell is in its level's list if
all its leaves are open and not all of its parent's are. Inside a node that is looked up by bit mask; above, each cell counts
those of its children that are wholly open. A change costs the levels it climbs and the cells that it splits or merges.
"""

from bisect import bisect_left, insort

from scheduler_service.core.cells.node_masks import change, parts
from scheduler_service.core.cells.shape import Shape, cell_mask
from scheduler_service.core.cells.slots import Facts
from scheduler_service.core.model.values import Mask

_INDEX = 48
"""How many bits of a key are the cell's index."""


def key_of(used: int, index: int) -> int:
    """The key, in the lists, of a cell with this many opportunistic leaves inside. Comparing one number costs a third of
    comparing a pair, and far less than that in long lists that have not been read for a while."""
    return used << _INDEX | index


def used_and_index(key: int) -> tuple[int, int]:
    return key >> _INDEX, key & (1 << _INDEX) - 1


def _remove(cells: list[int], key: int) -> None:
    """Removes a key that is in the list."""
    del cells[bisect_left(cells, key)]


class Free:
    """Leaves are open if they are healthy and under no binding; of opportunistic runs only their number in a cell counts."""

    __slots__ = ("_full", "_node", "_per", "_top", "counts", "facts", "lists", "shape", "sizes", "used", "wholes")

    def __init__(self, shape: Shape, facts: Facts) -> None:
        self.shape = shape
        self.facts = facts
        self.lists: list[list[int]] = [[] for _ in shape.fan]
        """Keys of the free cells, by level: those with the fewest opportunistic leaves inside first, then by index. A list is
        hardly longer than there are nodes, as buddies merge: an insertion moves everything behind it in one go."""
        self.counts = [0] * len(shape.fan)
        """f_k: how long the lists are."""
        self.used: list[dict[int, int]] = [{} for _ in shape.fan]
        """Opportunistic leaves in a cell, from the level of nodes up."""
        self.wholes: list[dict[int, int]] = [{} for _ in shape.fan]
        """How many children of a cell are wholly open, above the level of nodes."""
        self._node, self._top = shape.node, shape.top
        self._full = (1 << shape.devices) - 1
        self.sizes = tuple(shape.size(level) for level in range(len(shape.fan)))
        """Leaves in a cell, by level."""
        self._per = [shape.devices // shape.size(level) for level in range(shape.node + 1)]

    def set_open(self, slot: int, mask: Mask) -> None:
        here = self.facts[slot]
        old, opportunistic = here.open, here.opportunistic
        if mask == old:
            return
        here.open = mask
        gone, come = change(self.shape, old, mask)
        node, per, lists, counts = self._node, self._per, self.lists, self.counts
        for level, cell, leaves in gone:
            if level != node:
                counts[level] -= 1
                _remove(lists[level], (leaves & opportunistic).bit_count() << _INDEX | slot * per[level] + cell)
            else:
                self._close(slot)
        for level, cell, leaves in come:
            if level != node:
                counts[level] += 1
                insort(lists[level], (leaves & opportunistic).bit_count() << _INDEX | slot * per[level] + cell)
            else:
                self._reopen(slot)

    def _close(self, index: int) -> None:
        """Delists a node that is no longer wholly open: its buddies at each level are listed in place of larger cells."""
        level = self._node
        while level != self._top:
            fan = self.shape.fan[level + 1]
            parent = index // fan
            left = self.wholes[level + 1][parent] - 1
            if left:
                self.wholes[level + 1][parent] = left
            else:
                del self.wholes[level + 1][parent]
            if left != fan - 1:
                break
            self.counts[level] += fan - 1
            for buddy in self._buddies(level, index, fan):
                insort(self.lists[level], buddy)
            level, index = level + 1, parent
        self.counts[level] -= 1
        _remove(self.lists[level], key_of(self.used[level].get(index, 0), index))

    def _reopen(self, index: int) -> None:
        level = self._node
        while level != self._top:
            fan = self.shape.fan[level + 1]
            parent = index // fan
            count = self.wholes[level + 1].get(parent, 0) + 1
            self.wholes[level + 1][parent] = count
            if count != fan:
                break
            self.counts[level] -= fan - 1
            for buddy in self._buddies(level, index, fan):
                _remove(self.lists[level], buddy)
            level, index = level + 1, parent
        self.counts[level] += 1
        insort(self.lists[level], key_of(self.used[level].get(index, 0), index))

    def _buddies(self, level: int, index: int, fan: int) -> list[int]:
        used, first = self.used[level], index - index % fan
        return [key_of(used.get(i, 0), i) for i in range(first, first + fan) if i != index]

    def set_opportunistic(self, slot: int, mask: Mask) -> None:
        here = self.facts[slot]
        old, open_ = here.opportunistic, here.open
        if mask == old:
            return
        here.opportunistic = mask
        if open_ != self._full:
            for level, cell, leaves in parts(self.shape, open_):
                before, after = (leaves & old).bit_count(), (leaves & mask).bit_count()
                if before != after:
                    self._list(level, slot * self._per[level] + cell, before, after)
        listed = self.level_of(slot) if open_ == self._full else -1
        more, index = mask.bit_count() - old.bit_count(), slot
        for level in range(self._node, self._top + 1):
            if level != self._node:
                index //= self.shape.fan[level]
            before = self.used[level].pop(index, 0)
            if before + more:
                self.used[level][index] = before + more
            if level == listed and more:
                self._list(level, index, before, before + more)

    def _list(self, level: int, index: int, before: int, after: int) -> None:
        cells = self.lists[level]
        del cells[bisect_left(cells, key_of(before, index))]
        insort(cells, key_of(after, index))

    def level_of(self, slot: int) -> int:
        """The level of the free cell in which a wholly open node is."""
        level, index, fan = self._node, slot, self.shape.fan
        while level != self._top:
            index //= fan[level + 1]
            if self.wholes[level + 1].get(index, 0) != fan[level + 1]:
                break
            level += 1
        return level

    def outer_level(self, level: int, index: int) -> int | None:
        """The level of the free cell that this one is, or is inside of; None: it is not wholly open."""
        if level > self._node:
            slot, cell = index * (self.shape.size(level) // self.shape.devices), 0
        else:
            slot, cell = divmod(index, self._per[level])
        open_ = self.facts[slot].open
        if open_ == self._full:
            found = self.level_of(slot)
            return found if found >= level else None
        mask = cell_mask(self.shape, level, cell)
        return None if mask & ~open_ else next(part.level for part in parts(self.shape, open_) if part.mask & mask)

    def count_inside(self, level: int, index: int) -> list[int]:
        """How many free cells of each level are inside this cell, which is not itself inside one."""
        counts = [0] * len(self.shape.fan)
        if level < self._node:
            slot, cell = divmod(index, self._per[level])
            size = self.shape.size(level)
            for part in parts(self.shape, self.facts[slot].open):
                counts[part.level] += part.level <= level and part.mask >> cell * size & (1 << size) - 1 != 0
            return counts
        cells = [(level, index)]
        while cells:
            at, cell = cells.pop()
            if at == self._node:
                for part in parts(self.shape, self.facts[cell].open):
                    counts[part.level] += 1
            elif self.wholes[at].get(cell, 0) == self.shape.fan[at]:
                counts[at] += 1
            else:
                fan = self.shape.fan[at]
                cells += [(at - 1, child) for child in range(cell * fan, (cell + 1) * fan)]
        return counts
