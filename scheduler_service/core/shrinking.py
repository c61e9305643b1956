"""A virtual cluster owns fewer cells than it has bound: those that matter least go back, and the jobs in them lose their
guarantee."""

from collections import defaultdict

from scheduler_service.core.binding import bindings_of, mask_of_earmark, owned
from scheduler_service.core.cells.around import unbound
from scheduler_service.core.cells.shape import level_of
from scheduler_service.core.change import drop_earmarks, stop_job, tell
from scheduler_service.core.job import EventKind, Reason, Run, RunPhase, StopReason
from scheduler_service.core.pools import Pools
from scheduler_service.core.standing import demote
from scheduler_service.core.state import State
from scheduler_service.core.values import Mask, Micros, mask_of
from scheduler_service.core.vc import Binding, Guarantee, Owner, VirtualCluster
from scheduler_service.core.waiting import QueueKey, place_of

_NOBODY: QueueKey = (0, False, 0)


def shrink(state: State, pools: Pools, vc: int, why: str, now: Micros) -> None:
    """Of cells beyond what it owns now, in its quota or in exchange, those go back whose jobs matter least."""
    for (pool, level), bindings in _unpinned(state, vc).items():
        number = level_of(pools.pools[pool].shape, level) if pools.has(pool, level) else None
        if number is None or unbound(pools.pools[pool], Owner(vc), number) >= 0:
            continue
        for binding in _least_first(state, pools, bindings):
            if unbound(pools.pools[pool], Owner(vc), number) >= 0:
                break
            if (pool, level, binding.index) in state.bindings.rows:  # it has not gone with another of its gang's
                evacuate(state, pools, binding, why, now)


def _unpinned(state: State, vc: int) -> dict[tuple[str, str], list[Binding]]:
    """Its bound cells, by pool and level; in order."""
    found: dict[tuple[str, str], list[Binding]] = defaultdict(list)
    for _, binding in bindings_of(state, vc):
        if not binding.pin:
            found[binding.pool, binding.level].append(binding)
    return found


def _least_first(state: State, pools: Pools, bindings: list[Binding]) -> list[Binding]:
    """The idle ones, then by the job inside that matters most: that of the lowest priority, and of these that which was
    submitted last. Who is still to come matters less than who runs."""
    kept: dict[int, list[tuple[Mask, int]]] = defaultdict(list)
    for operation in state.operations.rows.values():
        kept[operation.node].append((mask_of_earmark(operation), operation.job_id))

    def first(binding: Binding) -> QueueKey | None:
        inside = pools.inside(binding)
        coming = {job_id for node, mask in inside for other, job_id in kept.get(node, ()) if other & mask}
        jobs = {*_running(state, inside), *(job_id for job_id in coming if not _is_guest(state, job_id))}
        return min((_rank(state, job_id) for job_id in jobs), default=None)

    ranks = {binding: first(binding) for binding in bindings}
    by_rank = [(rank is None, rank or _NOBODY, binding.index, binding) for binding, rank in ranks.items()]
    return [binding for *_, binding in sorted(by_rank, key=lambda one: one[:3], reverse=True)]


def _rank(state: State, job_id: int) -> QueueKey:
    """As it would stand in its queue."""
    job = state.jobs.rows[job_id]
    return place_of(job, state.settings.aging_us, has_run=job.requeued or bool(state.active.get(job_id)))


def _running(state: State, inside: list[tuple[int, Mask]]) -> set[int]:
    """Guaranteed jobs with a run on these devices."""
    runs = ((state.runs.rows[key], mask) for node, mask in inside for key in state.runs_on.get(node, ()))
    return {run.job_id for run, mask in runs if run.guaranteed and mask_of(run.devices) & mask}


def _is_guest(state: State, job_id: int) -> bool:
    return state.jobs.rows[job_id].spec.guarantee is Guarantee.OPPORTUNISTIC


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
    inside = pools.inside(binding)
    for job_id in sorted(_running(state, inside), key=lambda job_id: _rank(state, job_id), reverse=True):
        demote(state, job_id, now, text=why)
        if state.jobs.rows[job_id].spec.cells.vacates:
            _vacate(state, job_id, why, now)
    for job_id in _kept_for(state, inside):
        drop_earmarks(state, now, job_id, why)


def _kept_for(state: State, inside: list[tuple[int, Mask]]) -> list[int]:
    """Jobs for which some of these devices are kept as guaranteed, in order."""
    masks = dict(inside)
    kept = (row.job_id for row in state.operations.rows.values() if mask_of_earmark(row) & masks.get(row.node, 0))
    return sorted({job_id for job_id in kept if not _is_guest(state, job_id)})


def _vacate(state: State, job_id: int, why: str, now: Micros) -> None:
    """It leaves, as others' cells are not for it; within the time that anybody has whose cells are somebody else's."""
    job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
    if all(run.phase is not RunPhase.STOPPING for run in runs):
        stop_job(state, now, job, StopReason.RECLAIMED, Reason.RECLAIMED, most_us=state.settings.reclaim_grace_us)
        tell(state, now, job_id, EventKind.RECLAIMED, run=runs[0].run, node=runs[0].node, text=why)
