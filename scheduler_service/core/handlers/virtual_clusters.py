"""Virtual clusters are created, changed and deleted at run time; jobs that no longer fit become opportunistic, others stay."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from scheduler_service.core.allocation.bindings import bindings_of, give_back_unused
from scheduler_service.core.allocation.guarantee_loss import evacuate, forget_lost, shrink, strand
from scheduler_service.core.allocation.quota_shortfall import make_room
from scheduler_service.core.cells.pool_queries import free_cells_with_pins, is_unbound, overlap
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.promises import feasible
from scheduler_service.core.cells.shape import level_of
from scheduler_service.core.errors import AlreadyExists, FailedPrecondition, NotFound, no_such_vc, no_virtual_clusters
from scheduler_service.core.exchange.ownership import call_off_excess, leave_market
from scheduler_service.core.messages import VcChanged, VcDeleteRequested, VcRequested
from scheduler_service.core.model import RunKey
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Owner, Quota, VirtualCluster
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State


def vc_requested(state: State, event: VcRequested, now: Micros) -> VcChanged:
    """Creates a virtual cluster, or changes one. Refused, with the level and what is missing there, if all virtual clusters
    together could then not have what they were promised."""
    pools = pools_of(state)
    known = state.vc_ids.get(event.name)
    if event.create and known is not None:
        raise AlreadyExists("VC_EXISTS", f"there is a virtual cluster {event.name} already; update it instead", vc=event.name)
    old = VirtualCluster(state.cluster.next_vc, event.name) if event.create else find_vc(state, event.name)
    given: dict[str, Any] = {"quotas": event.quotas, "pins": event.pins, "weight": event.weight, "policy": event.policy}
    new: VirtualCluster = with_changes(old, **{name: value for name, value in given.items() if value is not None})
    new = with_changes(new, quotas=_merge_quotas(new.quotas))
    _check_pins(state, pools, old, new)
    _check_quotas(state, pools, new)
    if event.create:
        cluster = state.cluster
        state.put(state.cluster_table, 0, with_changes(cluster, next_vc=new.id + 1))
    missing, guaranteed = {name: pool.shortfall() for name, pool in pools.pools.items()}, _guaranteed_runs(state)
    state.put(state.vcs, new.id, new)
    stranded = not event.create and forget_lost(state, pools, new)
    _pin(state, old, new, now)
    if stranded:
        strand(state, new.name, f"virtual cluster {new.name} owns other cells now", now)
        give_back_unused(state)
    call_off_excess(state, new.id, now, f"virtual cluster {new.name} owns fewer cells now")
    shrink(state, pools, new.id, f"virtual cluster {new.name} owns fewer cells now", now)
    for name in sorted(missing):
        make_room(state, pools, name, missing[name], f"virtual cluster {new.name} owns other cells now", now)
    return VcChanged(new.id, tuple(sorted(guaranteed - _guaranteed_runs(state))))


def _guaranteed_runs(state: State) -> set[RunKey]:
    return {key for keys in state.guaranteed_runs.values() for key in keys}


def vc_delete_requested(state: State, event: VcDeleteRequested, now: Micros) -> VcChanged:
    """Deletes a virtual cluster, if it has no live jobs. What it gave and took in exchange goes back."""
    pools_of(state)
    row = find_vc(state, event.name)
    live = sorted(job.id for job in state.jobs.rows.values() if job.spec.vc == row.name)
    if live:
        raise FailedPrecondition(
            "VC_IN_USE",
            f"virtual cluster {row.name} has {len(live)} live jobs (the first: {live[0]}); cancel them, or let them end",
            vc=row.name,
        )
    leave_market(state, row.id, now, f"virtual cluster {row.name} is deleted")
    for key, _ in bindings_of(state, row.id):
        state.put(state.bindings, key, None)
    state.put(state.vcs, row.id, None)
    return VcChanged(row.id)


def find_vc(state: State, name: str) -> VirtualCluster:
    vc = state.vc_ids.get(name)
    if vc is None:
        raise no_such_vc(name, state.vc_ids)
    return state.vcs.rows[vc]


def pools_of(state: State) -> Pools:
    """The pools of a site. Raises FailedPrecondition if it has no virtual clusters."""
    if state.pools is None:
        raise no_virtual_clusters()
    return state.pools


def _merge_quotas(quotas: Iterable[Quota]) -> tuple[Quota, ...]:
    """One quota for each level of each pool, in order; empty ones are left out."""
    counts: Counter[tuple[str, str]] = Counter()
    for quota in quotas:
        counts[quota.pool, quota.level] += quota.cells
    return tuple(Quota(pool, level, count) for (pool, level), count in sorted(counts.items()) if count)


# ---- what there is, and what is promised -------------------------------------------------------------------------------


def level_named(pools: Pools, pool: str, level: str) -> int:
    if pool not in pools.pools:
        raise NotFound(
            "NO_SUCH_POOL", f"there is no pool {pool!r}; there are: {', '.join(pools.in_order()) or 'none'}", pool=pool
        )
    shape = pools.pools[pool].shape
    number = level_of(shape, level)
    if number is None:
        raise NotFound("NO_SUCH_LEVEL", f"pool {pool} has no level {level!r}; it has: {', '.join(shape.levels)}", level=level)
    return number


def _check_pins(state: State, pools: Pools, old: VirtualCluster, row: VirtualCluster) -> None:
    """Cells that it pins now must be unbound; those that it pins no more are not in the way."""
    names = [pin.name for pin in row.pins]
    if len(set(names)) != len(names):
        raise FailedPrecondition("PIN_TWICE", f"virtual cluster {row.name} names a pin twice: {', '.join(names)}", vc=row.name)
    cells = [(pin.pool, (level_named(pools, pin.pool, pin.level), pin.cell)) for pin in row.pins]
    for pin, (_, (level, _)) in zip(row.pins, cells, strict=True):
        if not pools.exists(pin.pool, level, pin.cell):
            there = _numbers(state, pools, pin.pool, level)
            raise NotFound("NO_SUCH_CELL", f"pool {pin.pool} has no {pin.level} {pin.cell}{there}", pool=pin.pool)
    for (one, (pool, cell)), (other, (beside, another)) in combinations(zip(row.pins, cells, strict=True), 2):
        if pool == beside and overlap(pools.pools[pool].shape, cell, another):
            raise FailedPrecondition(
                "PIN_TWICE",
                f"pins {one.name} and {other.name} of virtual cluster {row.name} overlap: {one.level} {one.cell} and "
                f"{other.level} {other.cell} of pool {pool}",
                vc=row.name,
            )
    going = {Owner(row.id, pin.name) for pin in old.pins if pin not in row.pins}
    for pin, (name, cell) in zip(row.pins, cells, strict=True):
        binding = state.bindings.rows.get((pin.pool, pin.level, pin.cell))
        kept = binding is not None and (binding.vc, binding.pin) == (row.id, pin.name)
        if not kept and not is_unbound(pools.pools[name], *cell, going):
            raise FailedPrecondition(
                "CELL_IN_USE",
                f"{pin.level} {pin.cell} of pool {pin.pool}, or part of it, is in guaranteed use or pinned; pin another, or "
                "wait until it is free",
                pool=pin.pool,
            )


def _numbers(state: State, pools: Pools, pool: str, level: int) -> str:
    """How cells of a level are numbered, by the example of the first node."""
    shape = pools.pools[pool].shape
    slot, node = min(pools.nodes[pool].items())
    if level > shape.node:
        return f"; it has {pools.tops(pool) * shape.size(shape.top) // shape.size(level)}, from 0 on"
    each, name = shape.devices // shape.size(level), state.nodes.rows[node].name
    cells = f"{slot * each} to {slot * each + each - 1}" if each > 1 else f"{slot}"
    return f"; node {name} has number {cells}, and `ebb cells` shows the numbers of nodes"


def _check_quotas(state: State, pools: Pools, row: VirtualCluster) -> None:
    """Checks that there is a one-to-one mapping from all assigned cells to existing cells (HiveD, section 3)."""
    asked: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    pinned: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for vc in [*(vc for vc in state.vcs.rows.values() if vc.id != row.id), row]:
        for quota in vc.quotas:
            if vc is not row and quota.pool not in pools.pools:
                continue  # its nodes are gone
            asked[quota.pool][level_named(pools, quota.pool, quota.level)] += quota.cells
        for pin in vc.pins:
            if pin.pool in pools.pools:
                pinned[pin.pool].append((level_named(pools, pin.pool, pin.level), pin.cell))
    for name in sorted({quota.pool for quota in row.quotas} | {pin.pool for pin in row.pins}):
        pool = pools.pools[name]
        short = feasible(free_cells_with_pins(pool.shape, pools.tops(name), pinned[name]), pool.shape, asked[name])
        if short is not None:
            raise FailedPrecondition(
                "INFEASIBLE_QUOTAS",
                f"pool {name} has {short.missing} cells of the level {pool.shape.levels[short.level]} too few for what all "
                f"virtual clusters would own together; assign less to {row.name}, or to another",
                pool=name,
                level=pool.shape.levels[short.level],
                missing=str(short.missing),
            )


# ---- what follows for cells that are bound -----------------------------------------------------------------------------


def _pin(state: State, old: VirtualCluster, new: VirtualCluster, now: Micros) -> None:
    """Binds the cells that are pinned now, and releases those that are not any more."""
    for pin in old.pins:
        if pin not in new.pins:
            key = pin.pool, pin.level, pin.cell
            if key in state.bindings.rows:
                evacuate(state, state.bindings.rows[key], f"pin {pin.name} is gone", now)
                state.put(state.bindings, key, None)
    for pin in new.pins:
        key = pin.pool, pin.level, pin.cell
        if key not in state.bindings.rows:
            state.put(state.bindings, key, Binding(*key, new.id, pin.name))
