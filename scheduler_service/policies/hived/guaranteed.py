"""Guaranteed work: each virtual cluster's queue, served in its own cells as in a cluster of its own (HiveD, section 3)."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from scheduler_service.core.allocation.bindings import is_entitled
from scheduler_service.core.allocation.guarantee import leaves_in_time
from scheduler_service.core.cells.feasibility import why_never
from scheduler_service.core.cells.guaranteed_search import Found, find
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import indices
from scheduler_service.core.cells.queries import cells_of
from scheduler_service.core.cells.request import RequestedCells, requested_cells
from scheduler_service.core.cells.shape import leaves as leaves_of
from scheduler_service.core.exchange.ownership import most_cells
from scheduler_service.core.messages import Action, AddEarmark, Bind, DropEarmark, GiveWay, Place, Plan, Spot, Wait
from scheduler_service.core.model import Decision, Job, JobSpec, Reason, RunKey
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Owner, VirtualCluster
from scheduler_service.core.model.values import ZERO, Mask, add, mask_of
from scheduler_service.core.state.holdings import first_of_each, made_ready
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.growth_beyond_quota import plan_reclaim
from scheduler_service.policies.hived.host_overuse import have_them_leave, overdrawn_nodes
from scheduler_service.policies.hived.reclaim import LeastLost
from scheduler_service.policies.placing.joining import join

Gone = dict[str, dict[int, Mask]]
"""Leaves, by pool and slot, that are held but count as available: their holders are to leave."""


class Choice(NamedTuple):
    """A pool in which a job may run, and what it asks there."""

    pool: str
    owner: Owner


def choices(pools: Pools, vc: VirtualCluster, spec: JobSpec) -> list[Choice]:
    """The pools in which the virtual cluster owns something that a job with this spec, which has no alternatives, may have; in
    the order in which they are tried."""
    cells = spec.cells
    owner = Owner(vc.id, cells.pin) if cells.pin else vc.owner
    owned = {pin.pool for pin in vc.pins if pin.name == cells.pin} if cells.pin else pools.has_cells_in(vc)
    return [Choice(name, owner) for name in pools.in_order() if name in owned and suits(pools, spec, name)]


def suits(pools: Pools, spec: JobSpec, pool: str) -> bool:
    """Whether a job with this spec, by what it names, may run in the pool."""
    cells = spec.cells
    fits = cells.pool in ("", pool) and cells.model in ("", pools.models[pool])
    enough = not spec.device_memory_mib or spec.device_memory_mib <= pools.device_memory_mib(pool)
    return fits and enough and (not spec.gpu_memory_mib or spec.gpu_memory_mib <= pools.usable_mib(pool))


def join_in_cells(state: State, job: Job, guaranteed: bool, in_pool: Callable[[str], bool]) -> Place | None:
    """Let a job that asks for a part of a device join others of its virtual cluster: of those pools, in cells to which it has a
    right, or (not guaranteed) in idle ones."""
    if not job.spec.shares:
        return None
    pools = state.pools
    assert pools is not None

    def may_join(node: int, mask: Mask) -> bool:
        position = pools.positions.get(node)
        return position is not None and in_pool(position.pool) and (not guaranteed or is_entitled(state, job, node, mask))

    return join(state, job, guaranteed, may_join, job.avoid)


def plan_in_cells(state: State, vc: VirtualCluster, job: Job, gone: Gone | None = None) -> Plan | None:
    """The plan by which the job starts in the virtual cluster's cells, or by which the opportunistic runs in its way leave.
    None: the virtual cluster has no room for it."""
    pools = state.pools
    assert pools is not None
    mine = choices(pools, vc, job.spec)
    if not gone and (shared := join_in_cells(state, job, True, {choice.pool for choice in mine}.__contains__)) is not None:
        return (shared,)
    for name, owner in mine:
        pool = pools.pools[name]
        wanted = requested_cells(job.spec, pool.shape, pools.share(name))
        if isinstance(wanted, str):
            continue
        found = _cheapest(pool, owner, wanted, gone.get(name) if gone else None, LeastLost(state, name, vc.policy.s))
        plan = None if found is None else _plan(state, pools, vc, job, name, found)
        if plan is not None:
            return plan
    return None


def _cheapest(
    pool: Pool, owner: Owner, wanted: RequestedCells, gone: dict[int, Mask] | None, choice: LeastLost
) -> Found | None:
    """Find room for the job. A gang's tasks are placed one after the other, each where the fewest runs are lost. If that costs
    several, they are placed once more, with a look at what else those runs make room for, and the cheaper way is taken."""
    found = find(pool, owner, wanted, gone, choice)
    if (
        found is None
        or len(wanted.needs) == 1
        or not any(pool.held_leaves(slot)[1] & mask for slot, mask in found.placed.values())
    ):
        return found
    lost = choice.runs_lost(list(found.placed.values()))
    other = find(pool, owner, wanted, gone, replace(choice, shared=True)) if lost > 1 else None
    return found if other is None or choice.runs_lost(list(other.placed.values())) >= lost else other


def _plan(state: State, pools: Pools, vc: VirtualCluster, job: Job, name: str, found: Found) -> Plan | None:
    levels = pools.pools[name].shape.levels
    spots = spots_at(pools, name, found.placed)
    actions = _opportunistic_lose(state, spots) if state.kept_for_opportunistic else []
    for level, index in found.binds:
        actions.append(Bind(vc.id, name, levels[level], index))
    in_the_way = in_the_way_of(state, spots)
    if lacking := overdrawn_nodes(state, job, spots, in_the_way):
        return have_them_leave(state, job, lacking, in_the_way)
    if not in_the_way:  # nearly always
        return (*actions, Place(job.id, tuple(spots), guaranteed=True, configuration=job.configuration))
    leaving: dict[int, list[RunKey]] = defaultdict(list)
    staying = without_warm(state, in_the_way)
    for key in sorted(key for keys in staying.values() for key in keys):
        leaving[key.job_id].append(key)
    late = first_of_each(state, (victim for victim in leaving if not _leaves_in_time(state, victim)))
    warm = [run for keys in in_the_way.values() for key in keys if (run := state.runs.rows[key]).awaits]
    with_late = {run.job_id for victim in late for run in made_ready(state, victim)}  # which give way with their share group
    for victim in sorted({run.job_id for run in warm if not run.guaranteed} - with_late):
        actions.append(GiveWay(victim, job.id))
    if not staying:
        return (*actions, Place(job.id, tuple(spots), guaranteed=True, configuration=job.configuration))
    actions += [plan_reclaim(state, victim, job, leaving[victim]) for victim in late]
    return (*actions, *keep(job, spots, staying))


def spots_at(pools: Pools, pool: str, placed: dict[int, tuple[int, Mask]]) -> list[Spot]:
    """The nodes and devices of these slots and positions of a pool, by rank."""
    spots, nodes = [], pools.nodes[pool]
    for rank in range(len(placed)):
        slot, mask = placed[rank]
        node = nodes[slot]
        spots.append(Spot(node, indices(pools.positions[node], mask)))
    return spots


def keep(job: Job, spots: list[Spot], in_the_way: dict[int, list[RunKey]], decision: Decision | None = None) -> Plan:
    """Keep what is at these spots for the job until those have left that are in its way."""
    actions: list[Action] = []
    tasks = job.spec.tasks()
    for node in sorted({spot.node for spot in spots}):
        ranks = tuple(rank for rank, spot in enumerate(spots) if spot.node == node)
        want = ZERO
        for rank in ranks:
            want = add(want, tasks[rank])
        devices = tuple(spots[rank].devices for rank in ranks)
        leaving = tuple(in_the_way.get(node, ()))
        actions.append(AddEarmark(job.id, node, want, leaving, decision, ranks, devices, job.configuration))
    return (*actions, Wait(job.id, Reason.WAITING_FOR_VICTIMS))


def _opportunistic_lose(state: State, spots: list[Spot]) -> list[Action]:
    """Drop what is kept at these spots for opportunistic jobs."""
    wanted: dict[int, Mask] = defaultdict(int)
    for spot in spots:
        wanted[spot.node] |= mask_of(spot.devices) & state.kept_for_opportunistic.get(spot.node, 0)
    if not any(wanted.values()):
        return []
    losing: dict[int, int] = {}  # an earmark of each: with it go all of its job
    for earmark in state.earmarks.rows.values():
        if earmark.mask & wanted.get(earmark.node, 0):
            losing[earmark.job_id] = min(earmark.id, losing.get(earmark.job_id, earmark.id))
    return [DropEarmark(losing[job_id], "somebody has a right to its devices") for job_id in sorted(losing)]


def in_the_way_of(state: State, spots: list[Spot]) -> dict[int, list[RunKey]]:
    """The runs that hold a device of these, by node."""
    wanted: dict[int, Mask] = {}
    for node, devices in spots:
        taken = mask_of(devices) & state.held_devices.get(node, 0)
        if taken:
            wanted[node] = wanted.get(node, 0) | taken
    return {
        node: [key for key in sorted(state.runs_on[node]) if mask_of(state.runs.rows[key].devices) & mask]
        for node, mask in wanted.items()
    }


def without_warm(state: State, in_the_way: dict[int, list[RunKey]]) -> dict[int, list[RunKey]]:
    """Without the destinations of migrations, which are free as soon as they give way."""
    staying = {node: [key for key in keys if not state.runs.rows[key].awaits] for node, keys in in_the_way.items()}
    return {node: keys for node, keys in staying.items() if keys}


def _leaves_in_time(state: State, job_id: int) -> bool:
    return all(leaves_in_time(state, run) for run in state.runs_of(job_id))


def place_on_cells_kept(state: State, job: Job) -> Place:
    """Start the job on the devices that its earmarks keep."""
    spots: dict[int, Spot] = {}
    earmarks = [state.earmarks.rows[earmark_id] for earmark_id in state.earmarks_of[job.id]]
    for earmark in earmarks:
        for rank, devices in zip(earmark.tasks, earmark.devices, strict=True):
            spots[rank] = Spot(earmark.node, devices)
    guaranteed = job.spec.guarantee is not Guarantee.OPPORTUNISTIC
    ordered = tuple(spots[rank] for rank in range(len(spots)))
    return Place(job.id, ordered, guaranteed, earmarks[0].configuration)


def holds_up(state: State, vc: VirtualCluster, job: Job) -> bool:
    """Whether those behind it wait for it: what its virtual cluster owns now would do, if nothing else ran there."""
    assert state.pools is not None
    return next(sufficing(state.pools, vc, job), None) is not None


def holds_up_now(state: State, vc: VirtualCluster, job: Job) -> bool:
    """The same, of the cells that are not faulty: one that could not run in these even if they were empty holds up no other."""
    pools = state.pools
    assert pools is not None
    return any(_may_run_now(pools, vc, choice, job) for choice in sufficing(pools, vc, job))


def _may_run_now(pools: Pools, vc: VirtualCluster, choice: Choice, job: Job) -> bool:
    if choice.owner.pin:
        return not _faulty_in_pin(pools, choice, job)
    pool, owned = pools.pools[choice.pool], cells_of(pools, vc, choice.pool)
    faulty = [pool.count_doomed(choice.owner, level) for level in range(len(owned))]
    return not any(faulty) or not _never_in(pools, choice, job, tuple(o - f for o, f in zip(owned, faulty, strict=True)))


def sufficing(pools: Pools, vc: VirtualCluster, job: Job) -> Iterator[Choice]:
    """The pools in which what its virtual cluster owns now would do, if nothing else ran there."""
    for choice in choices(pools, vc, job.spec):
        if not _never_in(pools, choice, job, cells_of(pools, vc, choice.pool)):
            yield choice


def why_not(state: State, vc: VirtualCluster, job: Job) -> Wait:
    """Why the first of its queue waits for cells."""
    pools = state.pools
    assert pools is not None
    ways = job.in_each_configuration()
    reasons = [_why_not_in(state, pools, vc, choice, one) for one in ways for choice in choices(pools, vc, one.spec)]
    if not reasons:
        return Wait(job.id, Reason.NEVER_IN_QUOTA, f"virtual cluster {vc.name} owns nothing that it may run in")
    return next((wait for wait in reasons if wait.reason is not Reason.NEVER_IN_QUOTA), reasons[0])


def _why_not_in(state: State, pools: Pools, vc: VirtualCluster, choice: Choice, job: Job) -> Wait:
    pool = pools.pools[choice.pool]
    if never := _never_in(pools, choice, job, cells_of(pools, vc, choice.pool)):
        if _never_in(pools, choice, job, most_cells(state, pools, vc, choice.pool)):
            return Wait(job.id, Reason.NEVER_IN_QUOTA, f"pool {choice.pool}: {never}")
        return Wait(job.id, Reason.BEYOND_QUOTA, f"virtual cluster {vc.name} owns what it needs at other times (exchanges)")
    faulty = _faulty_in_pin(pools, choice, job)
    if faulty:
        what = f"{faulty} {pool.shape.levels[0]} of pin {choice.owner.pin}"
        return Wait(job.id, Reason.CELLS_FAULTY, f"pool {choice.pool}: faulty cells of virtual cluster {vc.name}: {what}")
    doomed = [level for level in range(len(pool.shape.levels)) if pool.count_doomed(choice.owner, level)]
    if doomed:
        names = ", ".join(f"{pool.count_doomed(choice.owner, level)} {pool.shape.levels[level]}" for level in doomed)
        return Wait(job.id, Reason.CELLS_FAULTY, f"pool {choice.pool}: faulty cells of virtual cluster {vc.name}: {names}")
    return Wait(job.id, Reason.BEYOND_QUOTA, f"the cells of virtual cluster {vc.name} are in use")


def _faulty_in_pin(pools: Pools, choice: Choice, job: Job) -> int:
    """How many leaves of the pin that it names are faulty, where what is left would not do with nothing running; else 0."""
    pool = pools.pools[choice.pool]
    wanted = requested_cells(job.spec, pool.shape, pools.share(choice.pool))
    if not choice.owner.pin or isinstance(wanted, str):
        return 0
    levels = range(len(pool.shape.levels))
    pinned = [(level, index) for level in levels for index in pool.bound_of(choice.owner, level)]
    gone = {slot: mask for cell in pinned for slot, mask in leaves_of(pool.shape, *cell)}
    faulty = sum((mask & ~pool.healthy(slot)).bit_count() for slot, mask in gone.items())
    return faulty if faulty and find(pool, choice.owner, wanted, gone) is None else 0


def _never_in(pools: Pools, choice: Choice, job: Job, cells: tuple[int, ...]) -> str:
    """Why so many cells of each level would not do with nothing else running; empty if they would. A pin has no such limit."""
    if job.spec.cells.pin:
        return ""
    shape = pools.pools[choice.pool].shape
    wanted = requested_cells(job.spec, shape, pools.share(choice.pool))
    return wanted if isinstance(wanted, str) else why_never(wanted, shape, cells)
