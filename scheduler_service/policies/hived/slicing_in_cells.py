"""Jobs of a virtual cluster that take turns in its own cells, where its policy has them do so (Gandiva within HiveD).

A share group is of one virtual cluster, and guaranteed as a whole. So whatever the policy of one does, the others have their
cells as before.
"""

from collections.abc import Callable

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Plan
from scheduler_service.core.model import Job
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived.growth_beyond_quota import with_more
from scheduler_service.policies.hived.guaranteed import plan_in_cells, suits
from scheduler_service.policies.hived.opportunistic import place_opportunistic
from scheduler_service.policies.hived.placement_on_node import bind_on_server, on_server
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
