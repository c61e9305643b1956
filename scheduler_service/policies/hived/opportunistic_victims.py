"""The opportunistic runs of a virtual cluster that leave for an opportunistic job of its own that finds nothing idle.

As `preemption_in_vc`, with other victims: lower priorities go first, then as the policy says. What they leave is kept for the
job, until a job comes that has a right to it.
"""

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from scheduler_service.core.cells.node_masks import pick_cell
from scheduler_service.core.cells.opportunistic_search import find_idle, may_find
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.request import Need, RequestedCells, requested_cells
from scheduler_service.core.messages import Action, Plan, Preempt, Reclaim, Rng, Spot
from scheduler_service.core.model import Job, Run
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.holdings import group_of, made_ready, runs_together
from scheduler_service.core.state.preemption_rights import claim_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived.guaranteed import in_the_way_of, keep, spots_at, suits, without_warm
from scheduler_service.policies.hived.host_overuse import overdrawn_nodes
from scheduler_service.policies.hived.preemption_in_vc import rank, reachable_jobs, unscored_decision, within_bounds
from scheduler_service.policies.hived.victims_in_vc import by_pool


def make_opportunistic_leave(state: State, vc: VirtualCluster, job: Job, rng: Rng) -> Plan | None:
    """The plan that preempts runs for the job, and what it gets of that; None: no runs that may be preempted make room."""
    pools, victims, claim = state.pools, stages_within(vc.policy).victims, claim_of(state, job)
    assert pools is not None
    if victims is None or claim is None:
        return None
    able = within_bounds(state, vc, claim, victims, reachable_jobs(state, claim, job, _opportunistic_jobs(state, vc)))
    order, decision = rank(state, job, able, victims, rng)
    order = sorted(order, key=lambda other: other.priority)
    for others in by_pool(state, pools, order):
        found = _enough(state, job, others, one=victims.alone is not None)
        if found is None:
            continue
        chosen, spots = found
        shown = None if claim is Claim.PRIORITY else decision or unscored_decision(job, vc, len(chosen))
        going: list[Action] = [
            Reclaim(other.id, job.id) if shown is None else Preempt(other.id, job.id, vc.policy.cap, shown) for other in chosen
        ]
        return (*going, *keep(job, spots, without_warm(state, in_the_way_of(state, spots)), shown))
    return None


def _opportunistic_jobs(state: State, vc: VirtualCluster) -> list[Job]:
    """Jobs of the virtual cluster that run as opportunistic and hold leaves, none of whose tasks is leaving; by their ids."""
    ids = sorted({key.job_id for key in state.opportunistic_runs.get(vc.name, ())})
    return [state.jobs.rows[job_id] for job_id in ids if all(not run.phase.exits_soon for run in runs_together(state, job_id))]


class _Victim(NamedTuple):
    job: Job
    runs: Sequence[Run]
    leaves: Mapping[int, Mask]
    """The leaves of the pool that its runs hold, by slot."""
    group: ShareGroup | None
    """The share group of its runs, all members of which are among them."""


class _Wanted(NamedTuple):
    """A job's request to a pool."""

    job: Job
    pool: Pool
    cells: RequestedCells
    kinds: Set[tuple[int, int]]
    """Requests of tasks to their nodes: a number of leaves, and the level of the cell that these must be (-1: any leaves)."""


def _enough(state: State, job: Job, jobs: Sequence[Job], one: bool) -> tuple[list[Job], list[Spot]] | None:
    """Which of these jobs, all in one pool, are preempted, and where the job goes then; None: there is no room without any of
    them. Jobs are added in order until there is room, and then those that are not needed are left out. `one`: a job that makes
    room alone is preferred.

    A supposed end of a run costs as much as a real one, so conditions that only count leaves are asked first.
    """
    pools = state.pools
    assert pools is not None
    name = pools.positions[state.runs_of(jobs[0].id)[0].node].pool
    cells = requested_cells(job.spec, pools.pools[name].shape, pools.share(name))
    if isinstance(cells, str) or not suits(pools, job.spec, name):
        return None
    wanted = _Wanted(job, pools.pools[name], cells, {(need.leaves, need.level) for need in cells.needs})
    victims = [_victim(state, pools, name, other) for other in jobs]
    if not _room_without_all(state, wanted, victims):
        return None
    for victim in victims if one else ():
        if not _room_for_one(wanted, victim.leaves):
            continue
        with state.supposing():
            _end(state, victim)
            spots = _spots(state, wanted)
        if spots is not None and not overdrawn_nodes(state, job, spots, in_the_way_of(state, spots)):
            return [victim.job], spots
    with state.supposing():
        chosen, spots = _first_enough(state, wanted, victims)
    if spots is None or overdrawn_nodes(state, job, spots, in_the_way_of(state, spots)):
        return None
    return [victim.job for victim in chosen], spots


def _victim(state: State, pools: Pools, pool: str, job: Job) -> _Victim:
    runs, leaves = [*runs_together(state, job.id), *made_ready(state, job.id)], dict[int, Mask]()
    for run in runs:
        position = pools.positions.get(run.node)
        if position is not None and position.pool == pool:
            leaves[position.slot] = leaves.get(position.slot, 0) | positions(position, mask_of(run.devices))
    return _Victim(job, runs, leaves, group_of(state, job.id))


def _room_without_all(state: State, wanted: _Wanted, victims: Sequence[_Victim]) -> bool:
    """Whether there is room once all of them have ended. A job that waits in vain costs one look, however many they are."""
    leaves: dict[int, Mask] = {}
    for victim in victims:
        for slot, mask in victim.leaves.items():
            leaves[slot] = leaves.get(slot, 0) | mask
    parts = wanted.cells.parts
    if len(parts) == 1 and isinstance(parts[0], Need):
        return _room_for_one(wanted, leaves)
    if not may_find(wanted.pool, wanted.cells, leaves):
        return False
    with state.supposing():
        for victim in victims:
            _end(state, victim)
        return _spots(state, wanted) is not None


def _first_enough(state: State, wanted: _Wanted, victims: Sequence[_Victim]) -> tuple[list[_Victim], list[Spot] | None]:
    """Supposes one end after the other until there is room, and then that each victim that is not needed runs again."""
    chosen: list[_Victim] = []
    spots = None
    for victim in victims:
        _end(state, victim)
        chosen.append(victim)
        if _room_for_one(wanted, victim.leaves) and (spots := _spots(state, wanted)) is not None:
            break
    for victim in list(chosen) if spots is not None else ():
        if len(chosen) == 1:
            break
        for run in victim.runs:
            state.put(state.runs, run.key, run)
        if victim.group is not None:
            state.put(state.share_groups, victim.group.id, victim.group)
        fewer = _spots(state, wanted)
        if fewer is None:
            _end(state, victim)
        else:
            chosen, spots = [other for other in chosen if other is not victim], fewer
    return chosen, spots


def _end(state: State, victim: _Victim) -> None:
    for run in victim.runs:
        state.put(state.runs, run.key, None)
    if victim.group is not None:
        state.put(state.share_groups, victim.group.id, None)


def _room_for_one(wanted: _Wanted, leaves: Mapping[int, Mask]) -> bool:
    """Whether one of these nodes has room for a task of the job if these leaves are idle."""
    pool = wanted.pool
    for slot, mask in leaves.items():
        idle = pool.idle_leaves(slot) | mask
        for count, level in wanted.kinds:
            if idle.bit_count() >= count and (level < 0 or pick_cell(pool.shape, idle, level) is not None):
                return True
    return False


def _spots(state: State, wanted: _Wanted) -> list[Spot] | None:
    """The spots where the job would start in the state as it is; None: too little is idle."""
    placed = find_idle(wanted.pool, wanted.cells)
    if placed is None:
        return None
    assert state.pools is not None
    spots = spots_at(state.pools, wanted.pool.name, placed)
    return None if overdrawn_nodes(state, wanted.job, spots) else spots
