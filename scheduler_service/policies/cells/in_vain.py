"""What is told of a virtual cluster's job that may have others preempted, and finds nobody who would make room."""

from collections.abc import Iterable

from scheduler_service.core.messages import Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.model.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.state.eligibility import RULES, Rule, claim_of
from scheduler_service.core.state.state import State
from scheduler_service.policies.cells.guaranteed import holds_up, sufficing, suits
from scheduler_service.policies.cells.making_room import may_ask
from scheduler_service.policies.order.spared_jobs import NOT_ENOUGH, SHOWN, nothing_to_preempt, why_spared
from scheduler_service.policies.stages import stages_within


def in_vain(state: State, vc: VirtualCluster, job: Job, wait: Wait) -> Wait:
    """The wait of a job for which room was sought in vain among the guaranteed runs of its virtual cluster. Where every waiting
    job is looked at, and preempts if it can, that says nothing of one of them."""
    if wait.reason is not Reason.BEYOND_QUOTA or state.vc_orders[vc.name].overtakes or not holds_up(state, vc, job):
        return wait
    return among_its_own(state, vc, job, wait)


def among_its_own(state: State, vc: VirtualCluster, job: Job, wait: Wait) -> Wait:
    """The same, if the job may have others of its virtual cluster preempted now."""
    claim = claim_of(state, job)
    if stages_within(vc.policy).victims is None or claim is None or not may_ask(state, vc, claim):
        return wait
    if not RULES[claim].bounded and not _outranks_any(state, vc, job, RULES[claim]):
        return wait  # it waits as one does that may have nobody preempted
    if job.reason is not Reason.NOTHING_TO_PREEMPT and not (each := spared_in(state, vc, job, SHOWN)):
        return wait  # none of its virtual cluster's jobs has what it could use
    return nothing_to_preempt(wait, job, lambda: f"{wait.detail}; {NOT_ENOUGH}: {each}")


def spared_in(state: State, vc: VirtualCluster, job: Job, shown: int) -> str:
    """The jobs of the virtual cluster that hold what the job could use, each with why it is spared."""
    stages = stages_within(vc.policy)
    spares = (lambda _state, _job: False) if stages.victims is None else stages.victims.spares
    return why_spared(state, job, vc.policy.cap, shown, _holding(state, vc, job), spares)


def _outranks_any(state: State, vc: VirtualCluster, job: Job, rule: Rule) -> bool:
    return any(rule.outranks(state.jobs.rows[other].priority, job.priority) for other in _holding(state, vc, job))


def _holding(state: State, vc: VirtualCluster, job: Job) -> Iterable[int]:
    """Jobs with guaranteed runs in pools in which what the virtual cluster owns would do for the job; if that is opportunistic,
    those with any runs in pools in which it may run."""
    pools, ways = state.pools, job.in_each_configuration()
    assert pools is not None
    keys = set(state.guaranteed_runs.get(vc.name, ()))
    if job.spec.guarantee is Guarantee.OPPORTUNISTIC:
        keys.update(state.opportunistic_runs.get(vc.name, ()))
        among = {name for one in ways for name in pools.in_order() if suits(pools, one.spec, name)}
    else:
        among = {choice.pool for one in ways for choice in sufficing(pools, vc, one)}
    positions = ((key, pools.positions.get(state.runs.rows[key].node)) for key in keys)
    return {key.job_id for key, position in positions if position is not None and position.pool in among}
