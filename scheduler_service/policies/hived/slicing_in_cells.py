"""Jobs of a virtual cluster that take turns in its own cells, where its policy has them do so (Gandiva within HiveD).

A share group is of one virtual cluster, and guaranteed as a whole. So whatever the policy of one does, the others have their
cells as before. A guaranteed job takes room on a server in cells of its own, an opportunistic one on idle devices.
"""

from collections.abc import Callable

from scheduler_service.core.cells.node_masks import pick
from scheduler_service.core.cells.pool_queries import owned_positions
from scheduler_service.core.cells.positions import indices, positions
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Bind, Plan, Spot
from scheduler_service.core.model import Job
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, Owner, VirtualCluster
from scheduler_service.core.model.values import Mask
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived.growth_beyond_quota import with_more
from scheduler_service.policies.hived.guaranteed import plan_in_cells, suits
from scheduler_service.policies.hived.host_overuse import overdrawn_nodes
from scheduler_service.policies.hived.opportunistic import TRIED, bind_around, place_opportunistic
from scheduler_service.policies.stages import Overload, Where


def in_turns(state: State, vc: VirtualCluster, job: Job, overload: Overload) -> Plan | None:
    """The plan by which a job that has no room takes turns with guaranteed runs of its virtual cluster. None: it waits. A job
    that asks for cells of a level, or within one, waits for such cells: its turn would be on other devices."""
    pools, cells = state.pools, job.spec.cells
    if pools is None or cells.levels or cells.within:
        return None
    plan = _plan_of(vc)
    nodes = {state.runs.rows[key].node for key in state.guaranteed_runs.get(vc.name, ())}
    positions = ((node, pools.positions.get(node)) for node in sorted(nodes))
    suitable = [node for node, position in positions if position is not None and suits(pools, job.spec, position.pool)]
    return overload(state, job, Where(vc.name, True, suitable, plan, on_server, bind_on_server, with_more))


def _plan_of(vc: VirtualCluster) -> Callable[[State, Job], Plan | None]:
    """How a job of the virtual cluster would start: in its own cells, or an opportunistic one in idle ones."""

    def plan(state: State, job: Job) -> Plan | None:
        if job.spec.guarantee is not Guarantee.OPPORTUNISTIC:
            return plan_in_cells(state, vc, job)
        place = place_opportunistic(state, job)
        return None if place is None else (place,)

    return plan


def introspect(state: State) -> Proposals:
    """Introspect each virtual cluster whose policy has that stage."""
    for vc_id in sorted(state.vcs.rows):
        vc = state.vcs.rows[vc_id]
        if (stage := stages_within(vc.policy).introspect) is not None:
            yield from stage(state, Where(vc.name, True, plan=_plan_of(vc), onto=on_server, more=with_more))


def on_server(state: State, job: Job, node: int, guaranteed: bool) -> tuple[tuple[Bind, ...], tuple[Spot, ...]] | None:
    """Idle devices of the node for all tasks of the job, and the cells that are bound for it there. None: there are none, or
    the virtual cluster has no right to them. No run has to leave."""
    pools, vc_id, cells = state.pools, state.vc_ids.get(job.spec.vc), job.launch_spec.cells
    position = None if pools is None else pools.positions.get(node)
    if pools is None or position is None or vc_id is None or cells.levels or cells.within:
        return None
    if not suits(pools, job.launch_spec, position.pool) or not state.free_resources.is_open(node):
        return None
    pool, owner = pools.pools[position.pool], Owner(vc_id, cells.pin)
    mine, left = owned_positions(pool, owner, position.slot) if guaranteed else 0, pool.idle_leaves(position.slot)
    spots, all_taken = list[Spot](), 0
    for task in job.launch_spec.tasks():
        taken = pick(pool.shape, left & mine, task.devices) or pick(pool.shape, left, task.devices)
        if not taken:
            return None
        left, all_taken = left & ~taken, all_taken | taken
        spots.append(Spot(node, indices(position, taken)))
    binds = list[Bind]()
    if guaranteed:
        with state.supposing():
            if not bind_around(state, pool, position.slot, all_taken, owner, binds, iter(range(TRIED))):
                return None
    if overdrawn_nodes(state, job.in_configuration(job.configuration), spots):
        return None
    return tuple(binds), tuple(spots)


def bind_on_server(state: State, job: Job, node: int, mask: Mask) -> tuple[Bind, ...] | None:
    """The cells that are bound for a guaranteed job around these idle devices of the node. None: its virtual cluster has no
    right to them."""
    pools, vc_id, cells = state.pools, state.vc_ids.get(job.spec.vc), job.launch_spec.cells
    position = None if pools is None else pools.positions.get(node)
    if pools is None or position is None or vc_id is None or not suits(pools, job.launch_spec, position.pool):
        return None
    binds = list[Bind]()
    with state.supposing():
        pool, places = pools.pools[position.pool], positions(position, mask)
        bound = bind_around(state, pool, position.slot, places, Owner(vc_id, cells.pin), binds, iter(range(TRIED)))
    return tuple(binds) if bound else None
