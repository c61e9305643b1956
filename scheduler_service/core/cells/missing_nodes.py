"""Cells whose nodes are not in the pool: left out of it for the time being, or gone."""

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.queries import node_at
from scheduler_service.core.cells.shape import leaves, level_of
from scheduler_service.core.model.tenants.virtual_clusters import Binding


def left_out_of(pools: Pools, binding: Binding) -> list[int]:
    """Nodes that are left out of the pool and have their places in the cell, or around it."""
    places = {node: place for node in sorted(pools.misfits) if (place := pools.place_left_out(node)) is not None}
    slots = {(binding.pool, slot) for slot in _slots(pools, binding)} if places else set()
    return [node for node, place in places.items() if place in slots]


def lost(pools: Pools, binding: Binding) -> tuple[bool, bool]:
    """Whether nodes of the cell do not exist any more, and whether none of them does: its pool or its level has another name
    now, or they are in another pool. Nodes that are left out still exist."""
    slots = _slots(pools, binding)
    missing = sum(node_at(pools, binding.pool, slot) is None for slot in slots)
    if missing:
        missing -= len(left_out_of(pools, binding))
    return bool(missing) or not slots, missing == len(slots)


def _slots(pools: Pools, binding: Binding) -> list[int]:
    """The slots of its nodes; empty if its pool or level does not exist."""
    pool = pools.pools.get(binding.pool)
    level = None if pool is None else level_of(pool.shape, binding.level)
    return [] if pool is None or level is None else [slot for slot, _ in leaves(pool.shape, level, binding.index)]
