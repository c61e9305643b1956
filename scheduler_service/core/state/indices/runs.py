"""Indices over runs: what they hold, whether as guaranteed, and which of them a trial may preempt. And idle devices."""

from scheduler_service.core.model import Run, RunKey
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import Mask, Vector, mask_of, sub
from scheduler_service.core.state.holdings import holding
from scheduler_service.core.state.indices.charges import charge
from scheduler_service.core.state.indices.deadlines import set_deadline
from scheduler_service.core.state.indices.nonempty import add_or_discard, count, set_or_drop
from scheduler_service.core.state.preemption_rights import spared_reason
from scheduler_service.core.state.queue_keys import Deadline
from scheduler_service.core.state.tables import Tables

GUARD, OVERDUE = Deadline.GUARD, Deadline.STOP_OVERDUE


def of_run(state: Tables, old: Run | None, new: Run | None) -> None:
    if old is None:
        if new is not None:
            state.changed_runs[new.key] = None
            _comes_or_goes(state, new, there=True)
    elif new is None:
        _comes_or_goes(state, old, there=False)
    else:
        _changes(state, old, new)


def _comes_or_goes(state: Tables, run: Run, there: bool) -> None:
    key, guard = run.key, run.guarded_us
    add_or_discard(state.runs_on, run.node, key, there)
    _stir(state, run.node)
    if run.phase.awaits_source:
        if not there:
            state.changed_runs[key] = run  # its node is told that it is not needed, unless it begins
    else:
        _joins_launch(state, key, run, there)
    _hold(state, run, there)
    if state.keeps_order:
        charge(state, state.jobs.rows[run.job_id], run, there)
    _stand(state, None if there else run, run if there else None)
    if guard is not None:
        set_deadline(state, GUARD, tuple(key), None if there else guard, guard if there else None)
    if (due := run.due_us) is not None:
        set_deadline(state, OVERDUE, tuple(key), None if there else due, due if there else None)
    refresh_candidate(state, key)
    if run.group:
        state.stale_open_groups[run.group] = None
    state.pending.policies = True


def _stir(state: Tables, node: int) -> None:
    """Notes that policies that introspect have to look at the node again."""
    if state.introspects:
        state.pending.nodes.add(node)
        state.server_loads.stale.add(node)


def _joins_launch(state: Tables, key: RunKey, run: Run, there: bool) -> None:
    """Adds the run to the tasks of its job's launch, or removes it."""
    by = 1 if there else -1
    add_or_discard(state.active, run.job_id, key, there)
    if run.phase.counts_for_gang:
        count(state.ready, run.job_id, by)
    if run.started_us is not None:
        count(state.begun, run.job_id, by)
    if run.node in state.silent:
        count(state.unreachable, run.job_id, by)


def _changes(state: Tables, old: Run, new: Run) -> None:
    key = new.key
    if old.phase.awaits_source is not new.phase.awaits_source:
        _joins_launch(state, key, *((new, True) if old.phase.awaits_source else (old, False)))
        if state.pools is not None:
            _count(state, old, -1)
            _count(state, new, 1)
        _stir(state, new.node)
        state.pending.policies = True
        state.changed_runs[key] = None
        _refresh_group(state, new)
        return
    if old.phase is not new.phase or old.started_us is not new.started_us:
        count(state.ready, key.job_id, (new.phase.counts_for_gang) - (old.phase.counts_for_gang))
        count(state.begun, key.job_id, (new.started_us is not None) - (old.started_us is not None))
        if new.group:
            state.pending.policies = (
                True  # jobs that outrank it may get its turns now, though other tasks of its gang have not begun
            )
    if old.group != new.group or old.parked_mib != new.parked_mib or old.parking is not new.parking:
        _change_holder(state, old, new)
    elif old.guaranteed != new.guaranteed:
        _stand(state, old, new)
        state.pending.policies = True
    if old.generation != new.generation:
        state.changed_runs[key] = None
    if (new.stop_us is not None or old.stop_us is not None) and (before := old.due_us) != (due := new.due_us):
        set_deadline(state, OVERDUE, tuple(key), before, due)
    if old.stop_us is None and new.stop_us is not None:
        state.pending.policies = True  # a waiting job may be promised what this run is about to release
    if old.guarded_us != new.guarded_us:
        set_deadline(state, GUARD, tuple(key), old.guarded_us, new.guarded_us)
        state.pending.policies = True
    elif not old.phase.exits_soon and not new.phase.exits_soon:
        return
    refresh_candidate(state, key)


def _change_holder(state: Tables, old: Run, new: Run) -> None:
    """Updates what is held when the run joins a share group, which then holds its devices, or leaves one; or when its charge on
    its node changes because of a park."""
    _hold(state, old, False)
    _hold(state, new, True)
    if old.devices != new.devices:
        _stir(state, new.node)
    if state.keeps_order and old.used_devices_ppm != new.used_devices_ppm:
        charge(state, state.jobs.rows[old.job_id], old, False)
        charge(state, state.jobs.rows[new.job_id], new, True)
    for row in (old, new):
        if row.group:
            state.stale_open_groups[row.group] = None
    _stand(state, old, None)
    _stand(state, None, new)
    _refresh_group(state, new)
    state.pending.policies = True


def _refresh_group(state: Tables, run: Run) -> None:
    """Refreshes all members of the run's share group: the first that executes counts for all, and may have changed."""
    refresh_candidate(state, run.key)
    group = state.share_groups.rows.get(run.group)
    for key in () if group is None else group.members():
        refresh_candidate(state, key)


def _hold(state: Tables, run: Run, holds: bool) -> None:
    """Takes what the run needs, or releases it. The devices of a member of a share group are held by the group."""
    node, demand = run.node, run.charged if run.group or run.parked_mib else run.demand
    if state.host is not None and run.devices and run.parking is not None and run.parking.underway:
        (state.host.take if holds else state.host.give)(node, demand._replace(devices=0))
    if not run.group and (mask := mask_of(run.devices)) and (demand.devices or state.pools is not None):
        if faulty := hold_devices(state, node, mask, holds):  # where there are cells, CPUs are held as devices
            demand = sub(demand, Vector(devices=faulty.bit_count()))
    elif state.host is not None and not run.group:
        (state.host.take if holds else state.host.give)(node, demand)
    if holds:
        state.free_resources.take(node, demand)
    else:
        state.free_resources.give(node, demand)


def hold_devices(state: Tables, node: int, mask: Mask, holds: bool) -> Mask:
    """Marks devices as held, or as idle again. Returns the faulty ones: those that no run holds count as taken already."""
    faulty = state.faulty_devices.get(node, 0)
    held, idle = state.held_devices.get(node, 0), state.idle_devices.get(node, 0)
    if holds:
        held, idle = held | mask, idle & ~mask
    else:
        held, idle = held & ~mask, idle | mask & ~(faulty | state.kept_devices.get(node, 0))
    set_or_drop(state.held_devices, node, held or None)
    set_idle_devices(state, node, idle)
    return faulty & mask


def _stand(state: Tables, old: Run | None, new: Run | None) -> None:
    """Notes, on a site with cells, that the run's devices are held as guaranteed or as opportunistic."""
    if state.pools is None:
        return
    row = new or old
    if row is None:
        return
    if old is not None:
        _count(state, old, -1)
    if new is not None:
        _count(state, new, 1)
    if row.devices and not row.group:
        stand_devices(state, row.node, mask_of(row.devices), new is not None and new.guaranteed)


def stand_devices(state: Tables, node: int, mask: Mask, guaranteed: bool) -> None:
    """Notes, on a site with cells, whether devices are held as guaranteed."""
    before = state.guaranteed_devices.get(node, 0) & ~mask
    set_or_drop(state.guaranteed_devices, node, (before | mask if guaranteed else before) or None)
    hold_cells(state, node)


def _count(state: Tables, run: Run, sign: int) -> None:
    """Adds a run (+1) to the counts and sets of its kind, or removes it (-1). Devices of share groups are counted by group."""
    if run.is_parked or run.phase.awaits_source:
        return  # it has nothing that others could reclaim
    vc, guaranteed = run.vc, run.guaranteed
    if not guaranteed and not run.group:
        if run.demand.devices:
            count(state.opportunistic, vc, sign * run.demand.devices)
        else:
            count(state.opportunistic_cpus, vc, sign * max(run.demand.cpu_milli, 1000 * len(run.devices)))
    if not run.devices:
        return
    add_or_discard(state.guaranteed_runs if guaranteed else state.opportunistic_runs, vc, run.key, sign > 0)
    spec = state.jobs.rows[run.job_id].spec
    if spec.guarantee is Guarantee.OPPORTUNISTIC or (guaranteed and not spec.elastic):
        return
    count(state.within if guaranteed else state.without, run.job_id, sign)
    index = state.overflowing if spec.guarantee is Guarantee.OVERFLOW else state.demoted
    wanting = run.job_id in state.without and run.job_id not in state.within
    add_or_discard(index, vc, run.job_id, wanting)


def hold_cells(state: Tables, node: int) -> None:
    if state.pools is not None:
        for_opportunistic = state.kept_for_opportunistic.get(node, 0)
        taken = state.guaranteed_devices.get(node, 0) | state.kept_devices.get(node, 0) & ~for_opportunistic
        state.pools.hold(node, taken, (state.held_devices.get(node, 0) | for_opportunistic) & ~taken)


def refresh_candidate(state: Tables, key: RunKey) -> None:
    if key in state.runs.rows:
        state.stale_candidates[key] = None
    else:
        state.stale_candidates.pop(key, None)
        state.kept_candidates.drop(key)


def update_candidate(state: Tables, key: RunKey) -> None:
    run, job = state.runs.rows[key], state.jobs.rows.get(key.job_id)
    if job is not None and spared_reason(state, run, job) is None:
        state.kept_candidates.put(key, run, job, state.free_resources.capacity_of(run.node), holding(state, run))
    else:
        state.kept_candidates.drop(key)


def set_idle_devices(state: Tables, node: int, idle: Mask) -> None:
    set_or_drop(state.idle_devices, node, idle or None)
    if state.pools is None:  # else cells say where a job goes
        state.kept_idle_groups.stale.add(node)
