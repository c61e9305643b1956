"""Why a job of a virtual cluster waits though it may preempt others: which of them are spared, and why."""

from collections.abc import Iterable

from scheduler_service.core.messages import Wait
from scheduler_service.core.model import Job, Reason, RunKey
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.state.preemption_rights import RULES, claim_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived.guaranteed import holds_up, sufficing, suits
from scheduler_service.policies.hived.preemption_in_vc import may_ask
from scheduler_service.policies.queueing.nothing_to_preempt import NOT_ENOUGH, SHOWN, nothing_to_preempt, why_spared


def for_guaranteed(state: State, vc: VirtualCluster, job: Job, wait: Wait) -> Wait:
    """Return why a job waits if no guaranteed runs of its virtual cluster can be preempted for it; else `wait`.

    Under an order in which each waiting job may preempt others (`overtakes`) one job alone says nothing, and keeps `wait`."""
    if wait.reason is not Reason.BEYOND_QUOTA or (claim := claim_of(state, job)) is None:
        return wait
    overtakes, victims = state.vc_orders[vc.name].overtakes, stages_within(vc.policy).victims
    if overtakes or victims is None or not may_ask(state, vc, claim) or not _may_have_victims(state, vc, job, claim):
        return wait
    return _with_reason(state, vc, job, wait) if holds_up(state, vc, job) else wait


def for_opportunistic(state: State, vc: VirtualCluster, job: Job, wait: Wait) -> Wait:
    """Return why an opportunistic job waits if no runs of its virtual cluster can be preempted for it; else `wait`."""
    claim = claim_of(state, job)
    may = claim is not None and may_ask(state, vc, claim) and _may_have_victims(state, vc, job, claim)
    return _with_reason(state, vc, job, wait) if may and stages_within(vc.policy).victims is not None else wait


def _may_have_victims(state: State, vc: VirtualCluster, job: Job, claim: Claim) -> bool:
    """Whether the job outranks any that runs, if that alone counts. If not, it waits as one that may not preempt."""
    rule, rows = RULES[claim], state.jobs.rows
    if rule.bounded:
        return True
    priorities = {rows[key.job_id].priority for key in _runs(state, vc, job)}
    return any(rule.outranks(priority, job.priority) for priority in priorities) and any(
        rule.outranks(rows[other].priority, job.priority) for other in _holding(state, vc, job)
    )


def _with_reason(state: State, vc: VirtualCluster, job: Job, wait: Wait) -> Wait:
    if job.reason is not Reason.NOTHING_TO_PREEMPT and not (each := spared_in(state, vc, job, SHOWN)):
        return wait  # none of its virtual cluster's jobs has what it could use
    return nothing_to_preempt(wait, job, lambda: f"{wait.detail}; {NOT_ENOUGH}: {each}")


def spared_in(state: State, vc: VirtualCluster, job: Job, shown: int) -> str:
    """The jobs of the virtual cluster that hold what the job could use, each with why it is spared."""
    stages = stages_within(vc.policy)
    spares = (lambda _state, _job: False) if stages.victims is None else stages.victims.spares
    return why_spared(state, job, vc.policy.cap, shown, _holding(state, vc, job), spares)


def _holding(state: State, vc: VirtualCluster, job: Job) -> Iterable[int]:
    """Jobs with guaranteed runs in pools in which what the virtual cluster owns would do for the job; if that is opportunistic,
    those with any runs in pools in which it may run."""
    pools, ways = state.pools, job.in_each_configuration()
    assert pools is not None
    if job.spec.guarantee is Guarantee.OPPORTUNISTIC:
        among = {name for one in ways for name in pools.in_order() if suits(pools, one.spec, name)}
    else:
        among = {choice.pool for one in ways for choice in sufficing(pools, vc, one)}
    rows, at = state.runs.rows, pools.positions
    positions = ((key, at.get(rows[key].node)) for key in _runs(state, vc, job))
    return {key.job_id for key, position in positions if position is not None and position.pool in among}


def _runs(state: State, vc: VirtualCluster, job: Job) -> Iterable[RunKey]:
    """The guaranteed runs of the virtual cluster; for an opportunistic job, all that hold devices."""
    mine = state.guaranteed_runs.get(vc.name, ())
    return mine if job.spec.guarantee is not Guarantee.OPPORTUNISTIC else {*mine, *state.opportunistic_runs.get(vc.name, ())}
