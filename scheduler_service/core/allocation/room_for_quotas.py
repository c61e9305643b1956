"""Room for cells that were just promised: they may be there in number, and yet be in guaranteed use in part, here and there.

A cell of the level that is short, in which all belongs to one virtual cluster, can be bound to that as one of the cells of this
level that it owns: its runs stay where they are, and stay guaranteed, and the smaller cells in which they were are to be had
elsewhere. So nobody loses anything. Only if that does not do, runs lose their guarantee.
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
"""How many cells more are missing than before, by level, the highest first."""


def make_room(state: State, pools: Pools, name: str, missing: Sequence[int], why: str, now: Micros) -> None:
    """Until no more cells of the pool are missing than were `missing` before, by level; or nothing can be done about it."""
    pool = pools.pools[name]
    while any(excess := _excess(pool, missing)):
        level = len(excess) - 1 - next(place for place, count in enumerate(excess) if count)
        inside = _bound_inside(state, pool, name, level)
        if not (_bind_whole(state, pool, name, level, missing, inside) or _evacuate(state, pool, level, inside, why, now)):
            return


def _excess(pool: Pool, missing: Sequence[int]) -> Excess:
    return tuple(max(0, after - before) for after, before in zip(pool.shortfall(), missing, strict=True))[::-1]


def _bound_inside(state: State, pool: Pool, name: str, level: int) -> dict[int, list[Binding]]:
    """By cell of the level, what is bound in it, smaller cells alone; only healthy cells, of which nothing is pinned."""
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
    """Binds that cell of the level as a whole which leaves the fewest missing; False: none of them helps."""
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
    """The virtual cluster whose cells these all are, if it may have one more of the level bound."""
    (vc, *others) = {row.vc for row in rows}
    return None if others or unbound(pool, Owner(vc), level) <= 0 else vc


def _rebind(state: State, rows: Sequence[Binding], whole: Binding) -> None:
    for row in rows:
        state.put(state.bindings, (row.pool, row.level, row.index), None)
    state.put(state.bindings, (whole.pool, whole.level, whole.index), whole)


def _evacuate(state: State, pool: Pool, level: int, inside: dict[int, list[Binding]], why: str, now: Micros) -> bool:
    """Gives that cell back, with all that is bound in it, which costs the fewest guaranteed devices. False: there is none."""
    if not inside:
        return False  # something is faulty
    for binding in _in_order(inside[min(inside, key=lambda cell: (_cost(pool, level, cell), cell))]):
        evacuate(state, binding, why, now)
    return True


def _cost(pool: Pool, level: int, cell: int) -> int:
    return sum((pool.held(slot)[0] & mask).bit_count() for slot, mask in leaves(pool.shape, level, cell))


def _in_order(rows: Sequence[Binding]) -> Iterator[Binding]:
    return iter(sorted(rows, key=lambda row: (row.level, row.index)))
