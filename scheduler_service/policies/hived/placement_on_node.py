"""Room on one server for a job of a virtual cluster: a guaranteed job in cells of its own, an opportunistic one on idle
devices."""

from scheduler_service.core.cells.pool_queries import owned
from scheduler_service.core.cells.positions import indices, positions
from scheduler_service.core.cells.shape import pick
from scheduler_service.core.messages import Bind, Spot
from scheduler_service.core.model import Job
from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.guaranteed import suits
from scheduler_service.policies.hived.host_overuse import overdrawn
from scheduler_service.policies.hived.opportunistic import TRIED, bind_around


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
    mine, left = owned(pool, owner, position.slot) if guaranteed else 0, pool.idle(position.slot)
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
    if overdrawn(state, job.configured(job.configuration), spots):
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
