"""Virtual clusters, the trees of pools, and what pinned cells are used for, between the state and ebb.v1. For the engine's
thread, which owns the state."""

from collections.abc import Iterable, Iterator, Sequence

from ebb.v1 import virtual_clusters_pb2 as pb

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import indices
from scheduler_service.core.cells.queries import node_at
from scheduler_service.core.cells.shape import leaves, level_of
from scheduler_service.core.errors import NotFound
from scheduler_service.core.exchange.ownership import exchanges_of
from scheduler_service.core.handlers.virtual_clusters import find_vc, pools_of
from scheduler_service.core.model import Node, NodeState, RunKey
from scheduler_service.core.model.tenants.exchange import ExchangeState
from scheduler_service.core.model.tenants.virtual_clusters import Owner, Pin, Quota, VcPolicy, VirtualCluster
from scheduler_service.core.model.values import mask_of
from scheduler_service.core.state.state import State
from scheduler_service.rpc.convert.values import duration_out, message_of, time_out

# ---- virtual clusters --------------------------------------------------------------------------------------------------


def quotas_in(quotas: Iterable[pb.CellQuota]) -> tuple[Quota, ...]:
    return tuple(Quota(quota.pool, quota.level, quota.cells) for quota in quotas)


def pins_in(pins: Iterable[pb.PinnedCell]) -> tuple[Pin, ...]:
    return tuple(Pin(pin.name, pin.pool, pin.level, pin.index) for pin in pins)


def vc_out(state: State, row: VirtualCluster) -> pb.VirtualCluster:
    pools, traded = pools_of(state), _exchanged_cells(state, row.id)
    return pb.VirtualCluster(
        name=row.name,
        quotas=[message_of(pb.CellQuota, quota) for quota in row.quotas],
        pins=[pb.PinnedCell(name=p.name, pool=p.pool, level=p.level, index=p.cell) for p in row.pins],
        weight=row.weight,
        policy=_policy_out(row.policy),
        cells=[use for name in pools.in_order() for use in _uses(row, name, pools.pools[name], traded)],
        opportunistic_devices=state.opportunistic.get(row.name, 0),
        pin_uses=[pin_out(state, pools, pin) for pin in row.pins],
    )


def demoted_out(state: State, runs: Sequence[RunKey]) -> list[pb.DemotedRun]:
    """Runs that lost their guarantee: one for each launch. Of a job that has ended since it is not known whose it was."""
    launches = dict.fromkeys((key.job_id, key.run) for key in runs)
    of = {job_id: job.spec.vc for job_id, _ in launches if (job := state.jobs.rows.get(job_id)) is not None}
    return [pb.DemotedRun(job_id=job_id, run=run, virtual_cluster=of.get(job_id, "")) for job_id, run in launches]


def _policy_out(policy: VcPolicy) -> pb.VirtualClusterPolicy:
    return message_of(
        pb.VirtualClusterPolicy,
        policy,
        trials_in_flight=policy.trials_in_flight or 0,
        proxy_after=duration_out(policy.proxy_after_us),
        proxy_window=duration_out(policy.proxy_window_us),
        settings=dict(policy.settings),
    )


ExchangeIndex = dict[tuple[str, str], tuple[int, int]]
"""Pool and level -> how many of others' cells it has in exchange now, and of its own others have."""


def _exchanged_cells(state: State, vc: int) -> ExchangeIndex:
    found: ExchangeIndex = {}
    for exchange in exchanges_of(state, vc):
        if exchange.state is ExchangeState.ACTIVE:
            lot = exchange.lot
            taken, given = found.get((lot.pool, lot.level), (0, 0))
            more = (lot.count, 0) if exchange.taker == vc else (0, lot.count)
            found[lot.pool, lot.level] = taken + more[0], given + more[1]
    return found


def _uses(row: VirtualCluster, name: str, pool: Pool, traded: ExchangeIndex) -> Iterable[pb.CellUse]:
    """The largest cells first."""
    owner = Owner(row.id)
    for level in reversed(range(len(pool.shape.levels))):
        owned = pool.promises.count_owned(owner, level)
        bound, free = len(pool.bound_of(owner, level)), pool.promises.free_of(owner, level)
        faulty = pool.count_doomed(owner, level)
        known = pool.shape.levels[level]
        taken, given = traded.get((name, known), (0, 0))
        if owned or bound or taken or given:
            how = {"owned": owned, "bound": bound, "free": free - faulty, "faulty": faulty, "taken": taken, "given": given}
            yield pb.CellUse(pool=name, level=known, **how)


# ---- pools -------------------------------------------------------------------------------------------------------------


def pools_asked(state: State, pool: str, vc: str) -> list[str]:
    """The names of the pools that are to be shown. Raises NotFound."""
    pools = pools_of(state)
    if vc:
        find_vc(state, vc)
    if pool and pool not in pools.pools:
        known = ", ".join(pools.in_order()) or "none yet"
        raise NotFound("NO_SUCH_POOL", f"there is no pool {pool!r}; there are: {known}", pool=pool)
    return [pool] if pool else pools.in_order()


def pool_out(state: State, name: str) -> tuple[pb.Pool, list[int]] | None:
    """The pool without its nodes, and their slots in order; None: it is gone by now."""
    pools = pools_of(state)
    pool = pools.pools.get(name)
    if pool is None:
        return None
    shape, tops = pool.shape, pools.tops(name)
    missing = pool.shortfall()
    levels = [
        pb.CellLevel(
            name=level,
            fan=shape.fan[number],
            cells=tops * shape.size(shape.top) // shape.size(number),
            owned=pool.promises.reserved[number],
            free=pool.counts[number],
            missing=missing[number],
        )
        for number, level in enumerate(shape.levels)
    ]
    cells = [
        pb.BoundCell(level=shape.levels[number], index=index, virtual_cluster=_vc_name(state, owner), pin=owner.pin)
        for number in reversed(range(len(shape.levels)))
        for index, owner in sorted(pool.bound[number].items())
    ]
    plan = next((plan for plan in state.settings.pools or () if plan.name == name), None)
    misfits = [(state.nodes.rows[node].name, why) for node, why in sorted(pools.misfits.items())]
    slots = sorted(pools.nodes[name])
    exchanged = [
        pb.ExchangedCells(
            exchange_id=x.id,
            level=x.lot.level,
            cells=x.lot.count,
            giver=_vc_name(state, Owner(x.giver)),
            taker=_vc_name(state, Owner(x.taker)),
            end_time=time_out(x.lot.end_us),
        )
        for _, x in sorted(state.exchanges.rows.items())
        if x.state is ExchangeState.ACTIVE and x.lot.pool == name
    ]
    shown = pb.Pool(
        name=name,
        model=pools.models[name],
        levels=levels,
        node_level=shape.node,
        cells=cells,
        exchanged=exchanged,
        misfits=[pb.Misfit(node=node, why=why) for node, why in misfits if plan is not None and node in plan.nodes],
    )
    return shown, slots


def nodes_out(state: State, name: str, slots: Sequence[int], vc: str = "") -> list[pb.NodeCells]:
    """The nodes at these slots that are still there; with `vc` only those where that one has cells, or runs."""
    pools = pools_of(state)
    pool = pools.pools.get(name)
    kept = _kept_devices(state)
    shown = []
    for slot in slots:
        node = node_at(pools, name, slot)
        if pool is None or node is None:
            continue
        cells = _node_out(state, pools, node, slot, kept.get(node, {}))
        owners = {_vc_name(state, owner) for owner in pool.units_at(slot).values()} if vc else ()
        if not vc or vc in owners or any(device.virtual_cluster == vc for device in cells.devices):
            shown.append(cells)
    return shown


Kept = dict[int, dict[int, tuple[int, str]]]
"""Node -> device -> the job for which it is kept, and that one's virtual cluster."""


def _kept_devices(state: State) -> Kept:
    found: Kept = {}
    for earmark in state.earmarks.rows.values():
        job = state.jobs.rows[earmark.job_id]
        for devices in earmark.devices:
            found.setdefault(earmark.node, {}).update(dict.fromkeys(devices, (job.id, job.spec.vc)))
    return found


def _node_out(state: State, pools: Pools, node: int, slot: int, kept: dict[int, tuple[int, str]]) -> pb.NodeCells:
    row, position = state.nodes.rows[node], pools.positions[node]
    out = pb.NodeCells(node=row.name, index=slot, closed=why_closed(row))
    holders: dict[int, list[int]] = {}
    vcs: dict[int, str] = {}
    for key in sorted(state.runs_on.get(node, ())):
        run = state.runs.rows[key]
        for index in run.devices:
            holders.setdefault(index, []).append(run.job_id)
            vcs[index] = run.vc
    guaranteed = state.guaranteed_devices.get(node, 0)
    for index in position.order or range(pools.pools[position.pool].shape.devices):
        device, bit = state.devices.rows.get((node, index)), mask_of((index,))
        fault = device.fault if device is not None else ""
        if index in holders:
            use = pb.DEVICE_USE_GUARANTEED if guaranteed & bit else pb.DEVICE_USE_OPPORTUNISTIC
            out.devices.add(index=index, use=use, virtual_cluster=vcs[index], job_ids=holders[index], fault=fault)
        elif index in kept:
            job, vc = kept[index]
            out.devices.add(index=index, use=pb.DEVICE_USE_KEPT, virtual_cluster=vc, job_ids=[job], fault=fault)
        else:
            out.devices.add(index=index, use=pb.DEVICE_USE_FAULTY if fault else pb.DEVICE_USE_IDLE, fault=fault)
    return out


def _vc_name(state: State, owner: Owner) -> str:
    row = state.vcs.rows.get(owner.vc)
    return row.name if row is not None else ""


def pin_out(state: State, pools: Pools, pin: Pin) -> pb.PinUse:
    """A cell of several devices may be in use and faulty at once: then it is in use, and its faults are named all the same."""
    pool = pools.pools.get(pin.pool)
    level = None if pool is None else level_of(pool.shape, pin.level)
    if pool is None or level is None:
        gone = pb.PinFault(why=f"there is no {pin.pool}/{pin.level} any more")
        return pb.PinUse(name=pin.name, state=pb.PIN_STATE_FAULTY, faults=[gone])
    held, faults = 0, list[pb.PinFault]()
    for slot, places in leaves(pool.shape, level, pin.cell):
        held += (pool.held_leaves(slot)[0] & places).bit_count()
        node = node_at(pools, pin.pool, slot)
        if node is None:
            faults.append(_fault_of_missing(state, pools, pin.pool, slot))
        else:
            faults += _faults(state, node, indices(pools.positions[node], places))
    stands = pb.PIN_STATE_IN_USE if held else pb.PIN_STATE_FAULTY if faults else pb.PIN_STATE_FREE
    return pb.PinUse(name=pin.name, state=stands, devices=pool.shape.size(level), held=held, faults=faults)


def _faults(state: State, node: int, devices: Sequence[int]) -> Iterator[pb.PinFault]:
    row = state.nodes.rows[node]
    if why := why_closed(row):
        yield pb.PinFault(node=row.name, why=why)
    alike: dict[str, list[int]] = {}
    for index in devices:
        device = state.devices.rows.get((node, index))
        if device is not None and device.fault:
            alike.setdefault(device.fault, []).append(index)
    for fault, which in alike.items():
        yield pb.PinFault(node=row.name, devices=which, why=fault)


def _fault_of_missing(state: State, pools: Pools, pool: str, slot: int) -> pb.PinFault:
    """A node that the site counts to the pool and that has not joined, or is unlike the others; or one that is of another pool
    by now."""
    plan = next((plan for plan in state.settings.pools or () if plan.name == pool), None)
    row = state.nodes.rows.get(slot)
    name = plan.nodes[slot] if plan is not None else row.name if row is not None else ""
    return pb.PinFault(node=name, why=pools.misfits.get(state.node_ids.get(name, 0), "it is not there"))


def why_closed(row: Node) -> str:
    """Why nothing new is placed on the node; empty: it is open."""
    return "silent" if row.state is NodeState.SILENT else "drained" if row.drained_us is not None else ""
