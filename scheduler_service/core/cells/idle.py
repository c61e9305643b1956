"""Where opportunistic work fits: idle leaves of anybody's cells, from the end of the pool."""

from collections.abc import Iterator

from scheduler_service.core.cells.asked import Asked, Need, Part, needs_of
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.shape import cell_mask, pick, pick_cell
from scheduler_service.core.values import Mask


def find_idle(pool: Pool, asked: Asked) -> dict[int, tuple[int, Mask]] | None:
    """Idle leaves for every task, rank -> slot and positions, where guaranteed work will want them last; None: there are not
    enough. Changes nothing."""
    before: dict[int, Mask] = {}
    seats: dict[int, tuple[int, Mask]] = {}
    try:
        return seats if all(_idle(pool, part, seats, before) for part in asked.parts) else None
    finally:
        for slot, mask in before.items():
            pool.set_opportunistic(slot, mask)


def _idle(pool: Pool, part: Part, seats: dict[int, tuple[int, Mask]], before: dict[int, Mask]) -> bool:
    if isinstance(part, Need):
        found = pool.opportunistic(part.leaves)
        if found is not None and part.level >= 0 and pick_cell(pool.shape, found[1], part.level) is None:
            found = pool.last_whole(part.level)
        if found is None:
            return False
        _sit(pool, part, found, seats, before)
        return True
    needs = list(needs_of(part.parts))
    for slots, mask in _cells_from_the_end(pool, part.level):
        if sum((pool.idle(slot) & mask).bit_count() for slot in slots) >= sum(need.leaves for need in needs):
            chosen = _fill(pool, needs, slots, mask)
            if chosen is not None:
                for need, found in zip(needs, chosen, strict=True):
                    _sit(pool, need, found, seats, before)
                return True
    return not part.required and all(_idle(pool, one, seats, before) for one in part.parts)


def _sit(pool: Pool, need: Need, found: tuple[int, Mask], seats: dict[int, tuple[int, Mask]], before: dict[int, Mask]) -> None:
    slot, mask = found
    seats[need.rank] = found
    held = pool.held(slot)[1]
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


def _fill(pool: Pool, needs: list[Need], slots: range, mask: Mask) -> list[tuple[int, Mask]] | None:
    """A place for each, on the node with the fewest idle leaves that suffice."""
    idle = {slot: pool.idle(slot) & mask for slot in slots}
    found: list[tuple[int, Mask]] = []
    for need in needs:
        for slot in sorted(idle, key=lambda slot: (idle[slot].bit_count(), -slot)):
            taken = (
                pick_cell(pool.shape, idle[slot], need.level) if need.level >= 0 else pick(pool.shape, idle[slot], need.leaves)
            )
            if taken is not None:
                found.append((slot, taken))
                idle[slot] &= ~taken
                break
        else:
            return None
    return found
