"""Finds places for opportunistic work: idle leaves in cells of any owner, from the end of the pool."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from scheduler_service.core.cells.node_masks import pick, pick_cell
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.request import Need, Part, RequestedCells, Together, enough, needs_of
from scheduler_service.core.cells.shape import Shape, cell_mask
from scheduler_service.core.model.values import Mask


def find_idle(pool: Pool, request: RequestedCells) -> dict[int, tuple[int, Mask]] | None:
    """Idle leaves for every task, rank -> slot and positions, where guaranteed work will want them last; None: there are not
    enough. Changes nothing."""
    before: dict[int, Mask] = {}
    placed: dict[int, tuple[int, Mask]] = {}
    try:
        return placed if all(_place_on_idle(pool, part, placed, before) for part in request.parts) else None
    finally:
        for slot, mask in before.items():
            pool.set_opportunistic(slot, mask)


def may_find(pool: Pool, request: RequestedCells, leaves: Mapping[int, Mask]) -> bool:
    """Whether there could be room once these leaves, by slot, are idle, too. False: certainly not."""
    sizes = list(enumerate(pool.idle_sizes()))[1:]
    for slot, mask in leaves.items():
        idle = pool.idle_leaves(slot)
        sizes += [(idle.bit_count(), -1), ((idle | mask).bit_count(), 1)]
    return enough(request.needs, sizes)


def _place_on_idle(pool: Pool, part: Part, placed: dict[int, tuple[int, Mask]], before: dict[int, Mask]) -> bool:
    """Places a part that may be anywhere in the pool."""
    if isinstance(part, Need):
        found = pool.opportunistic(part.leaves)
        if found is not None and part.level >= 0 and pick_cell(pool.shape, found[1], part.level) is None:
            found = pool.last_whole(part.level)
        if found is None:
            return False
        _put_task(pool, part, found, placed, before)
        return True
    leaves = sum(need.leaves for need in needs_of(part.parts))
    for slots, mask in _cells_from_the_end(pool, part.level):
        cell = _Cell({slot: pool.idle_leaves(slot) & mask for slot in slots}, [])
        if _count(cell.idle) >= leaves and _fill(pool.shape, part.parts, cell):
            for need, found in cell.placed:
                _put_task(pool, need, found, placed, before)
            return True
    return not part.required and all(_place_on_idle(pool, one, placed, before) for one in part.parts)


def _put_task(
    pool: Pool, need: Need, found: tuple[int, Mask], placed: dict[int, tuple[int, Mask]], before: dict[int, Mask]
) -> None:
    slot, mask = found
    placed[need.rank] = found
    held = pool.held_leaves(slot)[1]
    before.setdefault(slot, held)
    pool.set_opportunistic(slot, held | mask)


def _cells_from_the_end(pool: Pool, level: int) -> Iterator[tuple[range, Mask]]:
    """All cells of the level, the last first, as nodes and positions on them."""
    shape = pool.shape
    seen: set[int] = set()
    for slot in sorted(pool.well[shape.node], reverse=True):
        if level > shape.node:
            fan = shape.size(level) // shape.devices
            if slot // fan not in seen:
                seen.add(slot // fan)
                yield range(slot // fan * fan, (slot // fan + 1) * fan), (1 << shape.devices) - 1
        else:
            for index in reversed(range(shape.devices // shape.size(level))):
                yield range(slot, slot + 1), cell_mask(shape, level, index)


# ---- inside one cell ---------------------------------------------------------------------------------------------------


class _Cell(NamedTuple):
    """Idle leaves of a cell by slot, and the tasks that have a place in it. Failed attempts are undone."""

    idle: dict[int, Mask]
    placed: list[tuple[Need, tuple[int, Mask]]]


def _fill(shape: Shape, parts: Iterable[Part], cell: _Cell) -> bool:
    """Places each part: all of them, or none."""
    before = len(cell.placed)
    for part in parts:
        if not (_place(shape, part, cell) if isinstance(part, Need) else _place_together(shape, part, cell)):
            while len(cell.placed) > before:
                _, (slot, mask) = cell.placed.pop()
                cell.idle[slot] |= mask
            return False
    return True


def _place(shape: Shape, need: Need, cell: _Cell) -> bool:
    """Places a task on the node with the fewest idle leaves that suffice."""
    for slot in sorted(cell.idle, key=lambda slot: (cell.idle[slot].bit_count(), -slot)):
        idle = cell.idle[slot]
        taken = pick_cell(shape, idle, need.level) if need.level >= 0 else pick(shape, idle, need.leaves)
        if taken is not None:
            cell.placed.append((need, (slot, taken)))
            cell.idle[slot] &= ~taken
            return True
    return False


def _place_together(shape: Shape, part: Together, cell: _Cell) -> bool:
    """Places a group in the inner cell with the fewest idle leaves that suffice; if that is only preferred, else anywhere."""
    leaves = sum(need.leaves for need in needs_of(part.parts))
    inside = [inner for inner in _cells_inside(shape, part.level, cell.idle) if _count(inner) >= leaves]
    for idle in sorted(inside, key=lambda idle: (_count(idle), -max(idle))):
        inner = _Cell(idle, [])
        if _fill(shape, part.parts, inner):
            cell.placed.extend(inner.placed)
            for _, (slot, mask) in inner.placed:
                cell.idle[slot] &= ~mask
            return True
    return not part.required and _fill(shape, part.parts, cell)


def _cells_inside(shape: Shape, level: int, idle: dict[int, Mask]) -> Iterable[dict[int, Mask]]:
    """Idle leaves of each cell of the level inside this one; if the level is not below this one's, of this one."""
    if level < shape.node:
        cells = [cell_mask(shape, level, index) for index in range(shape.devices // shape.size(level))]
        return [{slot: mask & cell} for slot, mask in idle.items() for cell in cells]
    found: dict[int, dict[int, Mask]] = defaultdict(dict)
    for slot, mask in idle.items():
        found[slot // (shape.size(level) // shape.devices)][slot] = mask
    return found.values()


def _count(idle: dict[int, Mask]) -> int:
    return sum(mask.bit_count() for mask in idle.values())
