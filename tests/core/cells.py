"""What the cells are compared with: HiveD's Algorithm 1 as printed, and definitions taken word for word, cell by cell."""

from collections.abc import Iterable, Iterator, Sequence

from hypothesis import strategies as st

from scheduler_service.core.cells.free_lists import Free, used_and_index
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.shape import Shape, leaves
from scheduler_service.core.cells.slots import Facts, Slot
from scheduler_service.core.model.tenants.virtual_clusters import Owner

NAMES = ("device", "switch", "socket", "node", "rack", "pod")

P100 = Shape(("device", "switch", "socket", "node"), (1, 2, 2, 2), 3)
CT1 = Shape(("device", "node"), (1, 2), 1)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    inside = draw(st.lists(st.integers(1, 3), max_size=3))
    above = draw(st.lists(st.integers(1, 3), max_size=2))
    fan = (1, *inside, *above)
    return Shape(tuple(f"level {k}" for k in range(len(fan))), fan, len(inside))


class Algorithm1:
    """Free cells of section 3.1 as printed. Which cell is popped is left open there: here the first."""

    def __init__(self, shape: Shape, tops: Sequence[int]) -> None:
        self.shape = shape
        self.free_cells: list[set[int]] = [set() for _ in shape.fan]
        self.free_cells[shape.top] = set(tops)

    def allocate_cell(self, level: int) -> int | None:
        if not self.free_cells[level]:
            if level == self.shape.top:
                return None
            c = self.allocate_cell(level + 1)
            if c is None:
                return None
            fan = self.shape.fan[level + 1]
            self.free_cells[level] |= set(range(c * fan, (c + 1) * fan))
        first = min(self.free_cells[level])
        self.free_cells[level].remove(first)
        return first

    def release_cell(self, level: int, cell: int) -> None:
        if level < self.shape.top:
            fan = self.shape.fan[level + 1]
            buddies = set(range(cell // fan * fan, (cell // fan + 1) * fan)) - {cell}
            if buddies <= self.free_cells[level]:
                self.free_cells[level] -= buddies
                self.release_cell(level + 1, cell // fan)
                return
        self.free_cells[level].add(cell)


def available(shape: Shape, slots: Iterable[int], pinned: Iterable[tuple[int, int]] = ()) -> dict[int, int]:
    """{level: whole cells} where all is well and nothing is bound but what is pinned, (level, index)."""
    facts = Facts(Slot)
    free = Free(shape, facts)
    for slot in slots:
        free.set_open(slot, (1 << shape.devices) - 1)
    for level, index in pinned:
        for slot, mask in leaves(shape, level, index):
            free.set_open(slot, facts[slot].open & ~mask)
    return {level: count for level, count in enumerate(free.counts) if count}


def free_cells(pool: Pool, level: int) -> list[tuple[int, int]]:
    """(opportunistic leaves inside, index) of the pool's free cells of Algorithm 1, in order."""
    return [used_and_index(key) for key in pool._lists.lists[level]]


def to_bind(pool: Pool, vc: Owner, level: int, need: int = 0) -> int | None:
    """The first cell for a free virtual cell of the VC, which must have one; None if nothing can be had now."""
    return next(pool.all_to_bind(vc, level, need), None)


Leaf = tuple[int, int]


def leaves_of(shape: Shape, level: int, index: int) -> set[Leaf]:
    return {(slot, i) for slot, mask in leaves(shape, level, index) for i in range(shape.devices) if mask >> i & 1}


def cells_of(shape: Shape, slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """All cells that have one of these nodes inside, or are inside one."""
    for level in range(shape.top + 1):
        if level <= shape.node:
            per = shape.devices // shape.size(level)
            yield from ((level, slot * per + i) for slot in slots for i in range(per))
        else:
            nodes = shape.size(level) // shape.devices
            yield from ((level, index) for index in sorted({slot // nodes for slot in slots}))


def free_by_definition(pool: Pool, slots: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Cells of which every leaf is healthy and under no binding, their parent not being such a one."""
    shape = pool.shape
    shut = {leaf for level, cells in enumerate(pool.bound) for index in cells for leaf in leaves_of(shape, level, index)}
    opened = {(slot, i) for slot in slots for i in range(shape.devices) if pool.healthy(slot) >> i & 1} - shut
    used = {(slot, i) for slot in slots for i in range(shape.devices) if pool.held_leaves(slot)[1] >> i & 1}
    found: list[list[tuple[int, int]]] = [[] for _ in shape.fan]
    for level, index in cells_of(shape, slots):
        inside = leaves_of(shape, level, index)
        above = leaves_of(shape, level + 1, index // shape.fan[level + 1]) if level < shape.top else None
        if inside <= opened and not (above is not None and above <= opened):
            found[level].append((len(inside & used), index))
    return [sorted(cells) for cells in found]


def cheapest_by_definition(pool: Pool, level: int) -> tuple[int, int] | None:
    """(opportunistic leaves, level of the free cell) of the best cell to bind, of all that may be taken."""
    shape, found = pool.shape, []
    for outer in range(level, shape.top + 1):
        if outer > level and not pool.safe_to_split(outer, level):
            continue
        fan = shape.size(outer) // shape.size(level)
        for _, index in free_cells(pool, outer):
            for cell in range(index * fan, (index + 1) * fan):
                inside = leaves_of(shape, level, cell)
                found.append((sum(pool.held_leaves(slot)[1] >> i & 1 for slot, i in inside), outer))
    return min(found, default=None)
