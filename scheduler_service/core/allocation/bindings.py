"""Cells are bound to a virtual cluster when a guaranteed job needs them, and released with the last one that used them (HiveD,
section 3.1)."""

from collections.abc import Collection, Mapping, Sequence

from scheduler_service.core.cells.pool_queries import is_unbound, unbound, unused_around
from scheduler_service.core.cells.pool_queries import owned_positions as owned_by
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.queries import left_out_of, nodes_in
from scheduler_service.core.cells.shape import level_of
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import Bind
from scheduler_service.core.model import Earmark, Job, Run
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Guarantee, Owner
from scheduler_service.core.model.values import Mask, Vector, fits, mask_of, times
from scheduler_service.core.state.state import State
from scheduler_service.core.state.tables import CellKey


def bind(state: State, action: Bind) -> None:
    """Binds a cell. Refused if the virtual cluster has no such cell left, or if another one could then not have what it owns:
    every legal request stays satisfiable (Eqn 2)."""
    pools = _pools(state)
    vc, pool = state.vcs.rows.get(action.vc), pools.pools.get(action.pool)
    if vc is None or pool is None:
        raise PlanRefused(f"there is no virtual cluster {action.vc}, or no pool {action.pool}")
    level = level_of(pool.shape, action.level)
    if level is None:
        raise PlanRefused(f"pool {action.pool} has no level {action.level}")
    if unbound(pool, vc.owner, level) <= 0:
        raise PlanRefused(f"virtual cluster {action.vc} has no {action.level} left in {action.pool}")
    if not is_unbound(pool, level, action.index):
        raise PlanRefused(f"{action.level} {action.index} of {action.pool} is bound, or part of it")
    if not pool.costs_nobody(vc.owner, level, action.index):
        raise PlanRefused(f"binding {action.level} {action.index} of {action.pool} would break a promise to others")
    binding = Binding(action.pool, action.level, action.index, action.vc)
    state.put(state.bindings, (action.pool, action.level, action.index), binding)


def is_entitled(state: State, job: Job, node: int, mask: Mask) -> bool:
    """Whether the job may be guaranteed on these devices: there are some, and its virtual cluster owns all of them."""
    return bool(mask) and owns_devices(state, job, node, mask)


def owns_devices(state: State, job: Job, node: int, mask: Mask) -> bool:
    """Whether all of these devices are in cells that are bound to the job's virtual cluster, and to the pin that it names."""
    pools = _pools(state)
    position = pools.positions.get(node)
    if position is None:
        return False
    bound = owned_by(pools.pools[position.pool], owner_of(state, job), position.slot)
    return not positions(position, mask) & ~bound


def in_own_cells(state: State, job: Job, node: int, mask: Mask) -> bool:
    """As `owns_devices`. On a node that its pool leaves out, it is not known which devices were in which cell: there it is
    enough that a cell at its place is bound to the job's virtual cluster."""
    place = _pools(state).place_left_out(node)
    return owns_devices(state, job, node, mask) if place is None else owner_of(state, job) in _owners_at(_pools(state), *place)


def _owners_at(pools: Pools, pool: str, slot: int) -> Collection[Owner]:
    return pools.pools[pool].units_at(slot).values()


def owner_of(state: State, job: Job) -> Owner:
    """The owner of the job's own cells, in the configuration of its launch, or in the only one of a view
    (`Job.in_configuration`)."""
    pin, vc = job.launch_spec.cells.pin, state.vcs.rows.get(state.vc_ids.get(job.spec.vc, 0))
    return vc.owner if vc is not None and not pin else Owner(0 if vc is None else vc.id, pin)


def suffices(state: State, node: int, demand: Vector, devices: Sequence[int]) -> bool:
    """Whether these are what a task with this demand has to hold on the node: as many devices as it asks for, or CPUs that
    carry it."""
    position = None if state.pools is None else state.pools.positions.get(node)
    if position is None:
        return len(devices) == demand.devices and not state.cpus_of(node)
    return fits(demand, times(position.share, len(devices))) if not position.share.devices else len(devices) == demand.devices


def give_back(state: State, node: int, mask: Mask) -> None:
    """Releases the cells around devices that guaranteed work has left, if no other such work is in them. Without virtual
    clusters, they are released once there are some again (see `startup_repair`)."""
    if state.pools is None:
        return
    pools = state.pools
    position = pools.positions.get(node)
    if position is None:
        _give_back_left_out(state, pools, node)
        return
    pool = pools.pools[position.pool]
    for level, index in unused_around(pool, position.slot, positions(position, mask)):
        key = (position.pool, pool.shape.levels[level], index)
        binding = state.bindings.rows[key]
        if not binding.pin and not (left_out_of(pools, binding) and _in_use(state, binding, kept_on(state))):
            state.put(state.bindings, key, None)


def _give_back_left_out(state: State, pools: Pools, node: int) -> None:
    """Releases the cells at the place of a node that its pool leaves out, if they have no guaranteed work any more."""
    if pools.place_left_out(node) is None:
        return
    kept = kept_on(state)
    for key, binding in sorted(state.bindings.rows.items()):
        if not binding.pin and node in left_out_of(pools, binding) and not _in_use(state, binding, kept):
            state.put(state.bindings, key, None)


def give_back_unused(state: State) -> None:
    """Releases cells without guaranteed work: it ended while there were no virtual clusters, or while the cells had another
    name. Virtual clusters that have such work in none of their cells keep them: the cells may get their names back."""
    away, kept = _vcs_outside_cells(state), kept_on(state)
    for key, binding in sorted(state.bindings.rows.items()):
        if not binding.pin and binding.vc not in away and not _in_use(state, binding, kept):
            state.put(state.bindings, key, None)


def _vcs_outside_cells(state: State) -> set[int]:
    """Virtual clusters with guaranteed runs in no cell of their own."""
    runs = [run for run in state.runs.rows.values() if run.guaranteed]
    held = ((state.jobs.rows[run.job_id], run.node, mask_of(run.devices)) for run in runs)
    return {owner_of(state, job).vc for job, node, mask in held if not in_own_cells(state, job, node, mask)}


def running_in(state: State, binding: Binding) -> set[int]:
    """Guaranteed jobs with a run in the cell, or one that is made ready there."""
    return {run.job_id for run in guaranteed_in(state, binding)}


def guaranteed_in(state: State, binding: Binding) -> list[Run]:
    """Guaranteed runs in the cell, also those that are made ready there."""
    pools = _pools(state)
    on = ((state.runs.rows[key], mask) for node, mask in nodes_in(pools, binding) for key in state.runs_on.get(node, ()))
    found = [run for run, mask in on if run.guaranteed and mask_of(run.devices) & mask]
    for node in left_out_of(pools, binding):
        runs = (state.runs.rows[key] for key in state.runs_on.get(node, ()))
        found += [run for run in runs if run.guaranteed and _is_of(state, state.jobs.rows[run.job_id], binding)]
    return found


def kept_for(state: State, earmark: Earmark) -> Job:
    """The job for which the earmark keeps something, in the configuration in which it is to start."""
    return state.jobs.rows[earmark.job_id].in_configuration(earmark.configuration)


Kept = Mapping[int, Sequence[Earmark]]
"""Node -> earmarks there for jobs that are to be guaranteed."""


def kept_on(state: State) -> Kept:
    found: dict[int, list[Earmark]] = {}
    for row in state.earmarks.rows.values():
        if row.devices and state.jobs.rows[row.job_id].spec.guarantee is not Guarantee.OPPORTUNISTIC:
            found.setdefault(row.node, []).append(row)
    return found


def coming_to(state: State, binding: Binding, kept: Kept) -> set[int]:
    """Jobs for which part of the cell is kept."""
    pools = _pools(state)
    inside = [(row, mask) for node, mask in nodes_in(pools, binding) for row in kept.get(node, ())]
    found = {row.job_id for row, mask in inside if row.mask & mask}
    for node in left_out_of(pools, binding):
        found |= {row.job_id for row in kept.get(node, ()) if _is_of(state, kept_for(state, row), binding)}
    return found


def _in_use(state: State, binding: Binding, kept: Kept) -> bool:
    return bool(running_in(state, binding)) or bool(coming_to(state, binding, kept))


def _is_of(state: State, job: Job, binding: Binding) -> bool:
    return owner_of(state, job) == Owner(binding.vc, binding.pin)


def bindings_of(state: State, vc: int) -> list[tuple[CellKey, Binding]]:
    """The virtual cluster's bound cells, in order."""
    return sorted((key, binding) for key, binding in state.bindings.rows.items() if binding.vc == vc)


def release_cells(state: State, run: Run) -> None:
    """Releases the cells of a run that has ended, or is no longer guaranteed."""
    if run.guaranteed and run.devices:
        give_back(state, run.node, mask_of(run.devices))


def _pools(state: State) -> Pools:
    require(state.pools is not None, "this site has no virtual clusters")
    assert state.pools is not None
    return state.pools
