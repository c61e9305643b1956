"""HiveD's baseline: virtual clusters with a quota of devices, wherever these are (`quota` makes the choices).

A quota of n devices is n cells of the lowest level of a pool; `quota_site` requests them. The policy binds one of these cells
for each device of a regular run. So the core checks this quota like any other, and regular runs are guaranteed runs. In a pool
of nodes without devices the lowest level is a CPU, and "device" means a CPU here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from scheduler_service.core.cells.closeness import closest_devices
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pool_queries import unbound
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.request import requested_cells
from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Bind, Place, Plan, Promote, Reclaim, Rng, Spot, Wait
from scheduler_service.core.model import Job, Reason, Run
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.model.values import Mask, first_of, mask_of
from scheduler_service.core.state.queue_keys import OWN_LANES, Lane
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived.guaranteed import in_the_way_of, keep, place_on_cells_kept, suits
from scheduler_service.policies.hived.opportunistic import place_opportunistic
from scheduler_service.policies.hived.policy import NOTES
from scheduler_service.policies.memo_updates import memo_updates
from scheduler_service.policies.options import Options
from scheduler_service.policies.placing.first_fit import start_on_earmarks
from scheduler_service.policies.stages import Overload, Stages, Where
from scheduler_service.sim.policies.quota import Low, is_within_quota, make_room, place, turns

DEVICE = 0
"""The lowest level of every pool."""


class Room(NamedTuple):
    """A pool in which a job may run."""

    pool: Pool
    needs: Sequence[int]
    """Devices of each task, by rank."""


def by_count(overflows: bool = True) -> Policy:
    """The YARN capacity scheduler as HiveD's evaluation refines it (section 5.2.1). `overflows`: a job beyond the quota may run
    on idle devices; False: it waits until the quota has room for it.

    A tenant's own policy gives the order of its queue. If its jobs take turns (gandiva), one that finds no idle devices takes
    turns with others of its tenant, and the policy introspects: so Gandiva shares a cluster by quotas.
    """

    def policy(state: State, _rng: Rng) -> Proposals:
        yield from start_on_earmarks(state, place_on_cells_kept)
        yield from serve(state)
        if not state.introspects:
            return
        before = len(state.journal.entries)
        for vc_id in sorted(state.vcs.rows):
            yield from introspect(state, state.vcs.rows[vc_id], overflows)
        if len(state.journal.entries) != before:
            yield from serve(state)

    def serve(state: State) -> Proposals:
        pools = state.pools
        assert pools is not None
        use = {vc.name: _use_of_all(pools.pools.values(), vc) for vc in state.vcs.rows.values()}
        for name in turns({name: used for name, (used, _) in use.items()}, {name: quota for name, (_, quota) in use.items()}):
            yield from _serve(state, pools, state.vcs.rows[state.vc_ids[name]], overflows)

    return memo_updates(policy, NOTES)


def stages(_options: Options) -> Stages:
    return Stages(by_count())


def _use(pool: Pool, vc: VirtualCluster) -> tuple[int, int]:
    """How many devices of the pool its regular runs hold or wait for (earmarks), and how many it owns."""
    quota = pool.promises.count_owned(vc.owner, DEVICE)
    return quota - unbound(pool, vc.owner, DEVICE), quota


def _use_of_all(pools: Iterable[Pool], vc: VirtualCluster) -> tuple[int, int]:
    use = [_use(pool, vc) for pool in pools]
    return sum(used for used, _ in use), sum(quota for _, quota in use)


def _serve(state: State, pools: Pools, vc: VirtualCluster, overflows: bool) -> Proposals:
    """Start the tenant's jobs in order. A job that waits blocks the jobs behind it, unless it can never start."""
    yield from _promote(state, pools, vc)
    chosen = stages_within(vc.policy)
    if chosen.put_back is not None:
        yield from chosen.put_back(state, vc.name, place_opportunistic)
    skip = 0
    while (job := _head(state, vc, skip)) is not None:
        if job.id in state.earmarks_of:
            skip += 1
            continue
        may_overflow = overflows and job.spec.guarantee is not Guarantee.GUARANTEED
        rooms = _rooms(pools, job)
        plan = _start(state, pools, vc, job, rooms, may_overflow)
        if plan is not None:
            if (yield plan) is not None:
                return
            continue
        turns = None if chosen.overload is None else _in_turns(state, pools, vc, job, overflows, chosen.overload)
        if turns is not None and (yield turns) is None:
            if _head(state, vc, skip) == job:
                return  # others make room for it
            continue
        wait = _why_not(vc, job, rooms, may_overflow)
        yield (wait,)
        if wait.reason is not Reason.NEVER_IN_QUOTA:
            return
        skip += 1


def _in_turns(state: State, pools: Pools, vc: VirtualCluster, job: Job, overflows: bool, overload: Overload) -> Plan | None:
    """The plan by which the job takes turns with regular runs of its tenant, on devices that already count for the quota."""
    rooms = {room.pool.name for room in _rooms(pools, job)}
    nodes = {state.runs.rows[key].node for key in state.guaranteed_runs.get(vc.name, ())}
    positions = ((node, pools.positions.get(node)) for node in sorted(nodes))
    suitable = [node for node, position in positions if position is not None and position.pool in rooms]
    return overload(state, job, Where(vc.name, True, suitable, _plan_of(vc, overflows)))


def introspect(state: State, vc: VirtualCluster, overflows: bool) -> Proposals:
    """Introspect by the tenant's own policy: its regular jobs are packed, and moved to wherever the quota lets them start."""
    if (stage := stages_within(vc.policy).introspect) is not None:
        yield from stage(state, Where(vc.name, True, plan=_plan_of(vc, overflows)))


def _plan_of(vc: VirtualCluster, overflows: bool) -> Callable[[State, Job], Plan | None]:
    """Return a function that plans how a job of the tenant would start."""

    def plan(state: State, job: Job) -> Plan | None:
        assert state.pools is not None
        may_overflow = overflows and job.spec.guarantee is not Guarantee.GUARANTEED
        return _start(state, state.pools, vc, job, _rooms(state.pools, job), may_overflow)

    return plan


def _why_not(vc: VirtualCluster, job: Job, rooms: Sequence[Room], may_overflow: bool) -> Wait:
    """Why the job waits."""
    if any(_within_quota(room, vc, job) for room in rooms):
        return Wait(job.id, Reason.NO_ROOM, "no node has so many devices together")
    used, quota = _use_of_all((room.pool for room in rooms), vc)
    if not may_overflow and all(sum(room.needs) > _use(room.pool, vc)[1] for room in rooms):
        return Wait(job.id, Reason.NEVER_IN_QUOTA, f"{vc.name} owns {quota} devices")
    return Wait(job.id, Reason.BEYOND_QUOTA, f"{vc.name} uses {used} of its {quota} devices")


def _rooms(pools: Pools, job: Job) -> list[Room]:
    asked = ((name, _needs(pools, job, name)) for name in pools.in_order() if suits(pools, job.spec, name))
    return [Room(pools.pools[name], needs) for name, needs in asked if needs is not None]


def _needs(pools: Pools, job: Job, name: str) -> list[int] | None:
    """How many devices of the pool each task needs, by rank; None: the job cannot run there."""
    wanted = requested_cells(job.spec, pools.pools[name].shape, pools.share(name))
    return None if isinstance(wanted, str) else [need.leaves for need in sorted(wanted.needs)]


def _within_quota(room: Room, vc: VirtualCluster, job: Job) -> bool:
    return job.spec.guarantee is not Guarantee.OPPORTUNISTIC and is_within_quota(*_use(room.pool, vc), sum(room.needs))


def _start(state: State, pools: Pools, vc: VirtualCluster, job: Job, rooms: Sequence[Room], may_overflow: bool) -> Plan | None:
    """Plan a start. Within the quota the job starts on idle devices, or reclaims devices. Beyond it the job starts on idle
    devices if it may overflow. None: it waits."""
    regular = [room for room in rooms if _within_quota(room, vc, job)]
    for room in regular:
        if (spots := _idle_spots(state, pools, room)) is not None:
            return (*_bind(pools, vc, spots), Place(job.id, spots, guaranteed=True))
    for room in regular:
        if (plan := _make_room(state, pools, vc, job, room)) is not None:
            return plan
    for room in rooms if may_overflow and not regular else ():
        if (spots := _idle_spots(state, pools, room)) is not None:
            return (Place(job.id, spots),)
    return None


def _idle_spots(state: State, pools: Pools, room: Room) -> tuple[Spot, ...] | None:
    """Idle devices for all tasks of the job; None: there are not enough on one node for some task."""
    nodes, free = _free(state, pools, room, state.idle_devices)
    chosen = place(room.needs, free)
    return None if chosen is None else _spots(state, state.idle_devices, [nodes[at] for at in chosen], room.needs)


def _free(state: State, pools: Pools, room: Room, of: Iterable[int]) -> tuple[list[int], list[int]]:
    """The open nodes of the pool among these, in order, and how many idle devices each has."""
    name, at, is_open = room.pool.name, pools.positions, state.free_resources.is_open
    nodes = sorted([node for node in of if node in at and at[node].pool == name and is_open(node)])
    return nodes, [state.idle_devices.get(node, 0).bit_count() for node in nodes]


def _spots(state: State, offered: Mapping[int, Mask], nodes: Sequence[int], needs: Sequence[int]) -> tuple[Spot, ...]:
    """Give each task the closest devices that are offered on its node."""
    taken: dict[int, Mask] = {}
    spots = []
    for node, need in zip(nodes, needs, strict=True):
        devices = closest_devices(state.device_tree(node), offered.get(node, 0) & ~taken.get(node, 0), need)
        taken[node] = taken.get(node, 0) | mask_of(devices)
        spots.append(Spot(node, devices))
    return tuple(spots)


def _bind(pools: Pools, vc: VirtualCluster, spots: Iterable[Spot]) -> Iterator[Bind]:
    """Bind each of these devices to the virtual cluster."""
    for node, devices in spots:
        at = pools.positions[node]
        shape, places = pools.pools[at.pool].shape, positions(at, mask_of(devices))
        for leaf in first_of(places, len(devices)):
            yield Bind(vc.id, at.pool, shape.levels[DEVICE], at.slot * shape.devices + leaf)


def _make_room(state: State, pools: Pools, vc: VirtualCluster, job: Job, room: Room) -> Plan | None:
    """Reclaim as few devices as possible from runs beyond a quota."""
    open_nodes, free = _free(state, pools, room, pools.nodes[room.pool.name].values())
    at = {node: i for i, node in enumerate(open_nodes)}
    low: dict[int, list[tuple[int, int]]] = {}
    for key in sorted(key for keys in state.opportunistic_runs.values() for key in keys):
        run = state.runs.rows[key]
        if run.node in at and _may_leave(state, run):
            low.setdefault(run.job_id, []).append((at[run.node], len(run.devices)))
    whole = [Low(job_id, tuple(parts)) for job_id, parts in low.items() if len(parts) == len(state.active[job_id])]
    choice = make_room(room.needs, free, whole)
    if choice is None:
        return None
    nodes = [open_nodes[i] for i in choice.nodes]
    offered = {node: state.idle_devices.get(node, 0) for node in nodes}
    for run in (run for job_id in choice.leave for run in state.runs_of(job_id)):
        if run.node in offered:
            offered[run.node] |= mask_of(run.devices)
    spots = _spots(state, offered, nodes, room.needs)
    reclaims = (Reclaim(job_id, job.id) for job_id in choice.leave)
    return (*_bind(pools, vc, spots), *reclaims, *keep(job, list(spots), in_the_way_of(state, list(spots))))


def _may_leave(state: State, run: Run) -> bool:
    """Whether the run is not stopping yet, and releases all of its devices to the job that reclaims them."""
    return run.stop_us is None and run.key not in state.promised_by and not state.holds_faulty(run)


def _promote(state: State, pools: Pools, vc: VirtualCluster) -> Proposals:
    """Make the oldest runs beyond the quota regular where they run, as far as the quota has room. In each pool the first run
    without room blocks the newer ones."""
    full: set[str] = set()
    for job_id in sorted(state.overflowing.get(vc.name, ())):
        if len(full) == len(pools.pools):
            return
        job, runs = state.jobs.rows[job_id], state.runs_of(job_id)
        at = pools.positions.get(runs[0].node)
        needs = None if at is None else _needs(pools, job, at.pool)
        if at is None or needs is None or at.pool in full:  # None: the node is no longer like the others of its pool
            continue
        if not is_within_quota(*_use(pools.pools[at.pool], vc), sum(needs)):
            full.add(at.pool)
        elif all(run.stop_us is None and not run.guaranteed for run in runs):
            yield (*_bind(pools, vc, (Spot(run.node, run.devices) for run in runs)), Promote(job_id))


def _head(state: State, vc: VirtualCluster, skip: int) -> Job | None:
    """The job behind the first `skip` jobs of the tenant's queue."""
    first: list[QueueKey] = []
    for lane in (*OWN_LANES, Lane.OPPORTUNISTIC):
        first += islice(state.waiting(vc.name, lane), skip + 1)
    ordered = sorted(set(first))
    return state.jobs.rows[ordered[skip][-1]] if skip < len(ordered) else None
