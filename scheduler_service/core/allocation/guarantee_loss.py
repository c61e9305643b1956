"""When a virtual cluster owns fewer cells than it has bound, the least important ones are released, and the jobs in them lose
their guarantee."""

from collections import defaultdict

from scheduler_service.core.allocation.bindings import (
    bindings_of,
    coming_to,
    guaranteed_in,
    in_own_cells,
    kept_for,
    kept_on,
    running_in,
)
from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.guarantee import demote, migrations_give_way
from scheduler_service.core.allocation.transitions import stop_job
from scheduler_service.core.cells.pool_queries import unbound
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.queries import has_level, lost_some_or_all
from scheduler_service.core.cells.shape import level_of
from scheduler_service.core.model import EventKind, Reason, StopReason
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Guarantee, Owner, VirtualCluster
from scheduler_service.core.model.values import Micros, mask_of
from scheduler_service.core.state.holdings import first_of_each, jobs_together
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_NOBODY: QueueKey = (0, False, 0)


def shrink(state: State, pools: Pools, vc: int, why: str, now: Micros) -> None:
    """Releases cells beyond those that the virtual cluster owns now, by quota or exchange; least important jobs first."""
    for (pool, level), bindings in _unpinned_cells(state, vc).items():
        number = level_of(pools.pools[pool].shape, level) if has_level(pools, pool, level) else None
        if number is None or unbound(pools.pools[pool], Owner(vc), number) >= 0:
            continue
        for binding in _least_first(state, bindings):
            if unbound(pools.pools[pool], Owner(vc), number) >= 0:
                break
            if (pool, level, binding.index) in state.bindings.rows:  # not released yet, with another cell of its gang
                evacuate(state, binding, why, now)


def _unpinned_cells(state: State, vc: int) -> dict[tuple[str, str], list[Binding]]:
    """The virtual cluster's bound cells that are not pinned, by pool and level; in order."""
    found: dict[tuple[str, str], list[Binding]] = defaultdict(list)
    for _, binding in bindings_of(state, vc):
        if not binding.pin:
            found[binding.pool, binding.level].append(binding)
    return found


def _least_first(state: State, bindings: list[Binding]) -> list[Binding]:
    """Orders cells for release: idle ones first, then by the most important job in each, the lowest priority first, and the one
    submitted last among equals. Jobs that are yet to come matter less than running ones."""
    kept = kept_on(state)
    jobs = {binding: running_in(state, binding) | coming_to(state, binding, kept) for binding in bindings}
    ranks = {binding: min((_rank(state, job_id) for job_id in inside), default=None) for binding, inside in jobs.items()}
    by_rank = [(rank is None, rank or _NOBODY, binding.index, binding) for binding, rank in ranks.items()]
    return [binding for *_, binding in sorted(by_rank, key=lambda one: one[:3], reverse=True)]


def _rank(state: State, job_id: int) -> QueueKey:
    """The place that the job would have in its queue."""
    return state.place_of(state.jobs.rows[job_id])


def forget_lost(state: State, pools: Pools, row: VirtualCluster) -> bool:
    """Unbinds cells of the virtual cluster that do not exist any more, except those that it pins. Returns whether any are
    missing, or parts of some: runs may then be in no cell of its own (`strand`)."""
    pinned = {(pin.pool, pin.level, pin.cell) for pin in row.pins}
    some = [(key, *found) for key, binding in bindings_of(state, row.id) if any(found := lost_some_or_all(pools, binding))]
    for key, _, wholly in some:
        if wholly and key not in pinned:
            state.put(state.bindings, key, None)
    return bool(some)


def strand(state: State, vc: str, why: str, now: Micros) -> None:
    """Takes the guarantee from runs of the virtual cluster that are in no cell of its own, and drops earmarks that are in none.
    Looks at its guaranteed runs, and at all earmarks."""
    runs = [state.runs.rows[key] for key in state.guaranteed_runs.get(vc, ())]
    jobs = state.jobs.rows
    stranded = [run for run in runs if not in_own_cells(state, jobs[run.job_id], run.node, mask_of(run.devices))]
    migrations_give_way(state, stranded, now, why)
    for job_id in first_of_each(state, sorted({run.job_id for run in stranded if not run.awaits})):
        demote(state, job_id, now, text=why)
    kept = [row for row in state.earmarks.rows.values() if row.devices and _waits_for_cells(state, row.job_id, vc)]
    for job_id in sorted({row.job_id for row in kept if not in_own_cells(state, kept_for(state, row), row.node, row.mask)}):
        drop_earmarks(state, now, job_id, why)


def _waits_for_cells(state: State, job_id: int, vc: str) -> bool:
    spec = state.jobs.rows[job_id].spec
    return spec.vc == vc and spec.guarantee is not Guarantee.OPPORTUNISTIC


def evacuate(state: State, binding: Binding, why: str, now: Micros) -> None:
    """Takes the guarantee from jobs in the cell, and drops what is kept there for jobs that were to come."""
    migrations_give_way(state, guaranteed_in(state, binding), now, why)
    by_rank = sorted(running_in(state, binding), key=lambda job_id: _rank(state, job_id), reverse=True)
    for job_id in first_of_each(state, by_rank):
        demote(state, job_id, now, text=why)
        for one in jobs_together(state, job_id):
            if state.jobs.rows[one].launch_spec.cells.vacates:
                _vacate(state, one, why, now)
    for job_id in sorted(coming_to(state, binding, kept_on(state))):
        drop_earmarks(state, now, job_id, why)


def _vacate(state: State, job_id: int, why: str, now: Micros) -> None:
    """Stops a job that does not want to stay in cells of others, within the grace period of a reclaim."""
    job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
    if all(not run.phase.exits_soon for run in runs):
        stop_job(state, now, job, StopReason.RECLAIMED, Reason.RECLAIMED, most_us=state.settings.reclaim_grace_us)
        log_event(state, now, job_id, EventKind.RECLAIMED, run=runs[0].run, node=runs[0].node, text=why)
