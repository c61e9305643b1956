"""Tasks that an elastic job of a virtual cluster has beyond its guarantee: opportunistic ones, on idle devices of its server.

A policy that rearranges runs makes a job grow this way (`gandiva/growing.py`). A job that has a right to the devices has the
other resized (`Reclaim.beyond`), which loses what it has beyond its guarantee, and nothing else.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from scheduler_service.core.allocation.guarantee import guaranteed_in_part
from scheduler_service.core.cells.node_masks import pick
from scheduler_service.core.cells.positions import indices, positions
from scheduler_service.core.messages import Bind, Place, Plan, Reclaim, Spot
from scheduler_service.core.model import Job, RunKey
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.core.model.values import mask_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.host_overuse import overdrawn_nodes

LOOKED_AT = 8
"""Jobs of each queue that are looked at as those that wait."""


def more_tasks(state: State, vc: VirtualCluster, job: Job) -> int:
    """How many tasks more the job is to have when it starts in the cells of its virtual cluster. While others wait, and if the
    policy does not have jobs grow, none."""
    return job.beyond if job.beyond and state.vc_orders[vc.name].rearranges and not _others_wait(state, job) else 0


def _others_wait(state: State, job: Job) -> bool:
    """One that has an earmark does not wait for what is idle."""
    keys = (key for queues in state.queues.values() for queue in queues.values() for key in islice(queue, LOOKED_AT))
    return any(key[-1] != job.id and key[-1] not in state.earmarks_of for key in keys)


def with_more(state: State, job: Job, plan: Plan, most: int) -> Plan:
    """The plan by which the job starts in its own cells, with up to so many tasks more. Unchanged if the job would wait for
    others, or run on several servers, or if there is no room for one more."""
    place, cells = plan[-1], job.spec.cells
    if not isinstance(place, Place) or not place.guaranteed or place.share is not None or cells.levels or cells.within:
        return plan
    if not job.spec.elastic or not all(isinstance(action, Bind) for action in plan[:-1]):
        return plan
    if len({spot.node for spot in place.spots}) != 1:
        return plan
    found = _idle_spots(state, job, place.spots, min(most, job.spec.max_tasks - len(place.spots)))
    for more in range(len(found), 0, -1):
        spots = (*place.spots, *found[:more])
        if not overdrawn_nodes(state, job.with_tasks(len(spots)), spots):
            return (*plan[:-1], replace(place, spots=spots, beyond=more))
    return plan


def _idle_spots(state: State, job: Job, spots: Iterable[Spot], most: int) -> list[Spot]:
    """Idle devices besides these, on the same node, for so many tasks at most."""
    pools, node = state.pools, next(iter(spots)).node
    assert pools is not None
    position, each = pools.positions[node], job.spec.gang[0].demand.devices
    pool, found = pools.pools[position.pool], list[Spot]()
    left = pool.idle_leaves(position.slot)
    for spot in spots:
        left &= ~positions(position, mask_of(spot.devices))
    while each and len(found) < most and (taken := pick(pool.shape, left, each)) is not None:
        found.append(Spot(node, indices(position, taken)))
        left &= ~taken
    return found


def plan_reclaim(state: State, victim: int, claimant: Job, in_the_way: Iterable[RunKey]) -> Reclaim:
    """Reclaim the devices of the victim, which has these runs in the way. If it is guaranteed, and only what it has beyond that
    is in the way, it gives that back and continues."""
    keys = list(in_the_way)
    beyond = guaranteed_in_part(state.runs_of(victim)) and not any(state.runs.rows[key].guaranteed for key in keys)
    return Reclaim(victim, claimant.id, len(keys) if beyond else 0)
