"""Jobs of a virtual cluster that may make room in its cells for another of its jobs, and what that job then gets.

The policy of the virtual cluster says which of them do (`preemption_in_vc`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from scheduler_service.core.allocation.bindings import bindings_of
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.queries import nodes_in
from scheduler_service.core.enact import enact
from scheduler_service.core.messages import Action, Demote, DropEarmark, Plan, Wait
from scheduler_service.core.model import Job, Reason, RunKey
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.holdings import runs_together
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.guaranteed import Gone, plan_in_cells


def running(state: State, vc: VirtualCluster) -> list[Job]:
    """The jobs that run in the virtual cluster's cells, at least in part, none of whose tasks is leaving; in order of their
    ids."""
    pools = state.pools
    assert pools is not None
    nodes = {node for _, binding in bindings_of(state, vc.id) for node, _ in nodes_in(pools, binding)}
    ids = {key.job_id for node in nodes for key in state.runs_on.get(node, ()) if _counts(state, vc, key)}
    whole = (job_id for job_id in sorted(ids) if not any(run.phase.exits_soon for run in runs_together(state, job_id)))
    return [state.jobs.rows[job_id] for job_id in whole]


def _counts(state: State, vc: VirtualCluster, key: RunKey) -> bool:
    run = state.runs.rows[key]
    return run.guaranteed and run.vc == vc.name and not run.phase.exits_soon


def waiting_for_others(state: State, vc: VirtualCluster) -> list[Job]:
    """Those for which something is kept in the virtual cluster's cells; in order of their ids."""
    jobs = (state.jobs.rows[job_id] for job_id in sorted(state.earmarks_of))
    return [job for job in jobs if job.spec.vc == vc.name and job.spec.guarantee is not Guarantee.OPPORTUNISTIC]


def leaves_of(state: State, pools: Pools, jobs: Iterable[Job]) -> Gone:
    """The leaves that are free once these have gone, by pool and slot."""
    gone: Gone = defaultdict(dict)
    for job in jobs:
        for node, mask in holdings(state, job):
            position = pools.positions.get(node)
            if position is not None:
                slots = gone[position.pool]
                slots[position.slot] = slots.get(position.slot, 0) | positions(position, mask)
    return gone


def by_pool(state: State, pools: Pools, jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs pool by pool, each list in the order given."""
    found: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        position = pools.positions.get(holdings(state, job)[0][0])
        if position is not None:
            found[position.pool].append(job)
    return [found[name] for name in sorted(found)]


def holdings(state: State, job: Job) -> list[tuple[int, Mask]]:
    """The nodes and devices that the job holds, with all that are preempted with it, or that are kept for it."""
    kept = (state.earmarks.rows[i] for i in sorted(state.earmarks_of.get(job.id, ())))
    return [(run.node, mask_of(run.devices)) for run in runs_together(state, job.id)] or [
        (earmark.node, earmark.mask) for earmark in kept
    ]


def first_enough(state: State, vc: VirtualCluster, wanting: Job, order: list[Job]) -> tuple[list[Job], Plan] | None:
    """The first of these that make room together, without any that is not needed, and the plan; None: all of them do not."""
    chosen, plan = list[Job](), None
    for job in order:
        chosen.append(job)
        if (plan := plan_without(state, vc, wanting, chosen)) is not None:
            break
    if plan is None:
        return None
    for job in list(chosen):
        others = [other for other in chosen if other is not job]
        fewer = plan_without(state, vc, wanting, others) if others else None
        if fewer is not None:
            chosen, plan = others, fewer
    return chosen, plan


def plan_without(state: State, vc: VirtualCluster, wanting: Job, gone: list[Job], stay: Sequence[Job] = ()) -> Plan | None:
    """The job's plan, once these have gone, but for those that stay as opportunistic. Those that wait themselves lose what is
    kept for them, and the runs that they preempted still leave, for this job then. None: there is no room for it."""
    pools = state.pools
    assert pools is not None
    staying = {job.id for job in stay}
    leaves = leaves_of(state, pools, [job for job in gone if job.id not in staying])
    actions: list[Action] = []
    for job in gone:
        if job.id in state.earmarks_of:
            earmark = min(state.earmarks_of[job.id])  # with it go all of its job
            actions += [DropEarmark(earmark, f"job {wanting.id} comes before it"), Wait(job.id, Reason.NONE)]
    first = (*actions, *(Demote(job.id, wanting.id) for job in stay))
    if not first:
        return plan_in_cells(state, vc, wanting, leaves)
    with state.supposing():
        refused = enact(state, first, state.cluster.clock_us)
        then = plan_in_cells(state, vc, wanting, leaves) if refused is None else None
    return None if then is None else first + then
