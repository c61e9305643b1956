"""A virtual cluster owns fewer cells than it has bound: the last ones go back, and the jobs in them lose their guarantee."""

from scheduler_service.core.binding import bindings_of, owned
from scheduler_service.core.cells.around import unbound
from scheduler_service.core.cells.shape import level_of
from scheduler_service.core.change import drop_earmarks, stop_job, tell
from scheduler_service.core.job import EventKind, Reason, Run, RunPhase, StopReason
from scheduler_service.core.pools import Pools
from scheduler_service.core.standing import demote
from scheduler_service.core.state import State
from scheduler_service.core.values import Mask, Micros, mask_of
from scheduler_service.core.vc import Binding, Guarantee, Owner, VirtualCluster


def shrink(state: State, pools: Pools, vc: int, why: str, now: Micros) -> None:
    """Of cells beyond what it owns now, in its quota or in exchange, the last ones go back."""
    for (name, level, _), binding in reversed(bindings_of(state, vc)):
        pool = pools.pools.get(name)
        number = None if pool is None else level_of(pool.shape, level)
        if pool is None or number is None or binding.pin:
            continue
        if unbound(pool, Owner(vc), number) < 0:
            evacuate(state, pools, binding, why, now)


def strand(state: State, pools: Pools, row: VirtualCluster, why: str, now: Micros) -> None:
    """Its cells of pools that there are not any more go, if it owns none there; and whoever is in no cell of its own loses its
    guarantee. Looks at all runs."""
    owned_in = {(quota.pool, quota.level) for quota in row.quotas} | {(pin.pool, pin.level) for pin in row.pins}
    for key, binding in bindings_of(state, row.id):
        if not pools.has(binding.pool, binding.level) and (binding.pool, binding.level) not in owned_in:
            state.put(state.bindings, key, None)
    runs = [run for run in state.runs.rows.values() if run.vc == row.name and run.guaranteed and run.devices]
    for job_id in sorted({run.job_id for run in runs if not owned(state, state.jobs.rows[run.job_id], *_where(run))}):
        demote(state, job_id, now, text=why)


def _where(run: Run) -> tuple[int, Mask]:
    return run.node, mask_of(run.devices)


def evacuate(state: State, pools: Pools, binding: Binding, why: str, now: Micros) -> None:
    """The guaranteed jobs in the cell lose their guarantee, and those that were to come what is kept for them."""
    for node, mask in pools.inside(binding):
        for key in sorted(state.runs_on.get(node, ())):
            run = state.runs.rows.get(key)
            if run is not None and run.guaranteed and mask_of(run.devices) & mask:
                demote(state, run.job_id, now, text=why)
                if state.jobs.rows[run.job_id].spec.cells.vacates:
                    _vacate(state, run.job_id, why, now)
        for operation in sorted(state.operations.rows.values(), key=lambda row: row.id):
            guest = state.jobs.rows[operation.job_id].spec.guarantee is Guarantee.OPPORTUNISTIC
            if not guest and operation.node == node and any(mask_of(devices) & mask for devices in operation.devices):
                drop_earmarks(state, now, operation.job_id, why)


def _vacate(state: State, job_id: int, why: str, now: Micros) -> None:
    """It leaves, as others' cells are not for it; within the time that anybody has whose cells are somebody else's."""
    job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
    if all(run.phase is not RunPhase.STOPPING for run in runs):
        stop_job(state, now, job, StopReason.RECLAIMED, Reason.RECLAIMED, most_us=state.settings.reclaim_grace_us)
        tell(state, now, job_id, EventKind.RECLAIMED, run=runs[0].run, node=runs[0].node, text=why)
