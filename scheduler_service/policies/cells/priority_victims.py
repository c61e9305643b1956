"""Which jobs are stopped for another of higher priority, inside a virtual cluster that goes by priority.

A lazy job stays where it is, as opportunistic.
"""

from scheduler_service.core.messages import Plan, Reclaim
from scheduler_service.core.model import Job
from scheduler_service.core.model.virtual_clusters import VirtualCluster
from scheduler_service.core.state.eligibility import Claim, why_not
from scheduler_service.core.state.state import State
from scheduler_service.policies.cells.guaranteed import holds_up
from scheduler_service.policies.cells.victims import by_pool, first_enough, plan_without, running, waiting_for_others


def make_way(state: State, vc: VirtualCluster, job: Job) -> Plan | None:
    """Has runs of lower priority leave for the job, those of the lowest first; the lazy ones stay, as opportunistic. Before any
    run come jobs that wait for others to leave: to take what is kept for them costs nobody anything. Who could never run in a
    private cluster of such cells has nobody leave who could, where they happen to be neighbours."""
    pools = state.pools
    assert pools is not None
    if not holds_up(state, vc, job):
        return None
    lower = [
        other
        for jobs in (waiting_for_others(state, vc), running(state, vc))
        for other in sorted(jobs, key=lambda other: (other.priority, -other.id))
        if why_not(Claim.PRIORITY, job, other, ()) is None
    ]
    for jobs in by_pool(state, pools, lower):
        found = None if plan_without(state, vc, job, jobs) is None else first_enough(state, vc, job, jobs)
        if found is not None:
            return _sparing_the_lazy(state, vc, job, *found)
    return None


def _sparing_the_lazy(state: State, vc: VirtualCluster, wanting: Job, chosen: list[Job], plan: Plan) -> Plan:
    """The job's plan, for which these leave. The lazy ones among them stay where they are, without their guarantee, unless
    there are no other cells for the job than those that they are in."""
    stay = [job for job in chosen if job.spec.cells.lazy and job.id in state.active]
    while stay:
        sparing = plan_without(state, vc, wanting, chosen, stay)
        if sparing is None:
            return plan
        leave = {action.job_id for action in sparing if isinstance(action, Reclaim)}
        if not any(job.id in leave for job in stay):
            return sparing
        stay = [job for job in stay if job.id not in leave]
    return plan
