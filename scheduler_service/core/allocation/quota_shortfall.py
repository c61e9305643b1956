"""Makes room for cells that were just promised: there may be enough of them, but each partly in guaranteed use.

A cell of the missing level that is used by one virtual cluster alone can be bound to it as a whole, as one of the cells of this
level that it owns: its runs stay where they are, and stay guaranteed, and the smaller cells that they were in become available
elsewhere. So no job loses anything. Only if that is not enough, runs lose their guarantee.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from scheduler_service.core.allocation.guarantee_loss import evacuate
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pool_queries import unbound
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.shape import leaves, level_of
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Owner
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State

Excess = tuple[int, ...]
"""Numbers of cells that are missing in addition to those that were missing before, by level, the highest first."""


def make_room(state: State, pools: Pools, name: str, missing: Sequence[int], why: str, now: Micros) -> None:
    """Makes room until no more cells of the pool are missing, by level, than were `missing` before, or nothing helps."""
    pool = pools.pools[name]
    while any(excess := _excess(pool, missing)):
        level = len(excess) - 1 - next(place for place, count in enumerate(excess) if count)
        inside = _bound_inside(state, pool, name, level)
        if not (_bind_whole(state, pool, name, level, missing, inside) or _evacuate(state, pool, level, inside, why, now)):
            return


def _excess(pool: Pool, missing: Sequence[int]) -> Excess:
    return tuple(max(0, after - before) for after, before in zip(pool.shortfall(), missing, strict=True))[::-1]


def _bound_inside(state: State, pool: Pool, name: str, level: int) -> dict[int, list[Binding]]:
    """Bound cells of lower levels, by the cell of this level that has them; only healthy cells in which nothing is pinned."""
    found: dict[int, list[Binding]] = defaultdict(list)
    barred: set[int] = set()
    for binding in state.bindings.rows.values():
        number = level_of(pool.shape, binding.level) if binding.pool == name else None
        if number is not None:
            cell = binding.index * pool.shape.size(number) // pool.shape.size(level)
            found[cell].append(binding)
            if binding.pin or number >= level:
                barred.add(cell)
    return {cell: rows for cell, rows in sorted(found.items()) if cell not in barred and _is_healthy(pool, level, cell)}


def _is_healthy(pool: Pool, level: int, cell: int) -> bool:
    return all(pool.healthy(slot) & mask == mask for slot, mask in leaves(pool.shape, level, cell))


def _bind_whole(
    state: State, pool: Pool, name: str, level: int, missing: Sequence[int], inside: dict[int, list[Binding]]
) -> bool:
    """Binds as a whole the cell of the level that leaves the fewest cells missing. False: none of them helps."""
    before, found = _excess(pool, missing), list[tuple[Excess, int]]()
    for cell, rows in inside.items():
        if (vc := _only_owner(pool, level, rows)) is not None:
            with state.supposing():
                _rebind(state, rows, Binding(name, pool.shape.levels[level], cell, vc))
                found.append((_excess(pool, missing), cell))
    better = [one for one in found if one[0] < before]
    if better:
        _, cell = min(better)
        _rebind(state, inside[cell], Binding(name, pool.shape.levels[level], cell, inside[cell][0].vc))
    return bool(better)


def _only_owner(pool: Pool, level: int, rows: Sequence[Binding]) -> int | None:
    """The virtual cluster that owns all of these cells, if it may bind one more of the level; else None."""
    (vc, *others) = {row.vc for row in rows}
    return None if others or unbound(pool, Owner(vc), level) <= 0 else vc


def _rebind(state: State, rows: Sequence[Binding], whole: Binding) -> None:
    for row in rows:
        state.put(state.bindings, (row.pool, row.level, row.index), None)
    state.put(state.bindings, (whole.pool, whole.level, whole.index), whole)


def _evacuate(state: State, pool: Pool, level: int, inside: dict[int, list[Binding]], why: str, now: Micros) -> bool:
    """Releases the cell that costs the fewest guaranteed devices, with all that is bound in it. False: no cell is left."""
    if not inside:
        return False  # something is faulty
    for binding in _in_order(inside[min(inside, key=lambda cell: (_cost(pool, level, cell), cell))]):
        evacuate(state, binding, why, now)
    return True


def _cost(pool: Pool, level: int, cell: int) -> int:
    return sum((pool.held_leaves(slot)[0] & mask).bit_count() for slot, mask in leaves(pool.shape, level, cell))


def _in_order(rows: Sequence[Binding]) -> Iterator[Binding]:
    return iter(sorted(rows, key=lambda row: (row.level, row.index)))
