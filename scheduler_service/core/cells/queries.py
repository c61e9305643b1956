"""Queries about all cells of the pools, or about one anywhere; those of one pool are in `pool_queries`.

Some ask for cells whose nodes are not in the pool: left out of it for the time being, or gone."""

from scheduler_service.core.cells.pool_queries import unbound
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import indices
from scheduler_service.core.cells.shape import leaves, level_of
from scheduler_service.core.model.tenants.exchange import Kind
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Owner, VirtualCluster
from scheduler_service.core.model.values import Mask, mask_of


def has_level(pools: Pools, pool: str, level: str) -> bool:
    """Whether such cells exist now: rows outlive a level that the site, or an agent, renames."""
    return pool in pools.pools and level_of(pools.pools[pool].shape, level) is not None


def lacks(pools: Pools, pool: str) -> bool:
    """Whether the healthy and free cells of the pool cannot keep some promise."""
    return pool in pools.pools and not pools.pools[pool].holds()


def cells_of(pools: Pools, vc: VirtualCluster, pool: str) -> tuple[int, ...]:
    """How many cells of each level of the pool the virtual cluster owns now, including those that it has in exchange."""
    promises = pools.pools[pool].promises
    return promises.quota.get(vc.owner, promises.none)


def all_leaves(pools: Pools, devices: bool) -> int:
    """How many devices there are in all pools, healthy or not; or else how many CPUs in those without devices."""
    known = (name for name, model in pools.models.items() if bool(model) == devices)
    return sum(pools.tops(name) * pools.pools[name].shape.size(pools.pools[name].shape.top) for name in known)


def node_at(pools: Pools, pool: str, slot: int) -> int | None:
    return pools.nodes[pool].get(slot) if pool in pools.nodes else None


def nodes_in(pools: Pools, binding: Binding) -> list[tuple[int, Mask]]:
    """The nodes in the cell, or around it, with those of their devices that are in it."""
    pool = pools.pools.get(binding.pool)
    level = None if pool is None else level_of(pool.shape, binding.level)
    if pool is None or level is None:
        return []
    found = []
    for slot, places in leaves(pool.shape, level, binding.index):
        node = node_at(pools, binding.pool, slot)
        if node is not None:
            found.append((node, mask_of(indices(pools.positions[node], places))))
    return found


def idle_cells(pools: Pools, kind: Kind) -> int:
    """How many of these cells the virtual cluster could bind now; not those that are faulty or missing."""
    vc, name, level_name = kind
    pool = pools.pools.get(name)
    level = None if pool is None else level_of(pool.shape, level_name)
    if pool is None or level is None:
        return 0
    owner = Owner(vc)
    return max(unbound(pool, owner, level) - pool.count_doomed(owner, level), 0)


def left_out_of(pools: Pools, binding: Binding) -> list[int]:
    """Nodes that are left out of the pool and have their places in the cell, or around it."""
    places = {node: place for node in sorted(pools.misfits) if (place := pools.place_left_out(node)) is not None}
    slots = {(binding.pool, slot) for slot in _slots(pools, binding)} if places else set()
    return [node for node, place in places.items() if place in slots]


def lost_some_or_all(pools: Pools, binding: Binding) -> tuple[bool, bool]:
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
