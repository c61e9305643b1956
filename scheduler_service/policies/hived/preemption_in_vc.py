"""Preemption for a job of a virtual cluster that finds no room in the cells of that.

The policy of the virtual cluster says by which right a job has room made (its claim), and in which order others are preempted.
In FitGpp's Eqn 2 "it fits" reads here "the cells that the job asks for are there once the victim has gone". Before any run is
stopped, resources are taken that are kept for jobs which have not started: that costs no work.
"""

from collections.abc import Iterable
from dataclasses import replace

from scheduler_service.core.messages import Action, AddEarmark, Plan, Preempt, Reclaim, Rng
from scheduler_service.core.model import Decision, Job, JobClass
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.core.state.holdings import first_of_each, jobs_together
from scheduler_service.core.state.preemption_rights import RULES, claim_of, spared_reason, why_not
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.hived.guaranteed import holds_up
from scheduler_service.policies.hived.victims_in_vc import by_pool, first_enough, plan_without, running, waiting_for_others
from scheduler_service.policies.stages import Ranked, Victims


def make_room(state: State, vc: VirtualCluster, job: Job, rng: Rng) -> Plan | None:
    """The job's plan, with those that it has preempted; None: no job that may be preempted would make room. A job that could
    never run in a private cluster of such cells preempts none that could, even if its cells happen to be neighbors."""
    pools, victims, claim = state.pools, stages_within(vc.policy).victims, claim_of(state, job)
    assert pools is not None
    if victims is None or claim is None or not may_ask(state, vc, claim) or not holds_up(state, vc, job):
        return None
    ranked = rank(state, job, reachable_jobs(state, claim, job, running(state, vc)), victims, rng)
    kept = lowest_first(reachable_jobs(state, claim, job, waiting_for_others(state, vc)))
    losing = {other.id for other in kept}
    for jobs in by_pool(state, pools, [*kept, *within_bounds(state, vc, claim, victims, ranked.jobs)]):
        if plan_without(state, vc, job, jobs) is None:
            continue  # trying them one by one in vain is expensive
        lose, runs = [other for other in jobs if other.id in losing], [other for other in jobs if other.id not in losing]
        found = first_enough(state, vc, job, lose)
        if found is None and victims.alone is not None:
            found = _one(state, vc, job, runs)
            runs = runs if found is not None else victims.rank(state, job, runs, rng).jobs
        if found is None:
            found = first_enough(state, vc, job, [*lose, *runs])
        if found is not None:
            chosen, plan = found
            if claim is Claim.PRIORITY:
                return _sparing_the_lazy(state, vc, job, chosen, plan)
            if all(other.id in losing for other in chosen):
                return plan
            mine = {one for other in chosen for one in jobs_together(state, other.id)}
            return _preempting(plan, mine, job, vc, ranked.decision)
    return None


def may_ask(state: State, vc: VirtualCluster, claim: Claim) -> bool:
    """Whether one more job of the virtual cluster may wait for others to leave."""
    most = vc.policy.trials_in_flight
    if most is None or not RULES[claim].capped:
        return True
    waiting = (state.jobs.rows[job_id].spec for job_id in state.earmarks_of)
    return sum(spec.vc == vc.name and spec.job_class is JobClass.TRIAL for spec in waiting) < most


def reachable_jobs(state: State, claim: Claim, job: Job, others: Iterable[Job]) -> list[Job]:
    """Those whose runs the job may have preempted now, or that may lose what is kept for them. Of those that share devices, the
    first represents all, if the job may have all of them preempted."""
    may = _may_go if RULES[claim].bounded else _may_yield
    able = {other.id: other for other in others if all(may(state, claim, job, one) for one in jobs_with(state, other))}
    return [able[job_id] for job_id in first_of_each(state, able)]


def jobs_with(state: State, job: Job) -> list[Job]:
    """The job, and those that are preempted with it."""
    return [state.jobs.rows[job_id] for job_id in jobs_together(state, job.id)]


def _may_go(state: State, claim: Claim, job: Job, other: Job) -> bool:
    runs = state.runs_of(other.id)
    return (
        why_not(state, claim, job, other, runs) is None
        and other.id not in state.unreachable
        and all(spared_reason(state, run, other) is None for run in runs)
    )


def _may_yield(state: State, claim: Claim, job: Job, other: Job) -> bool:
    return why_not(state, claim, job, other, ()) is None


def rank(state: State, job: Job, able: list[Job], victims: Victims, rng: Rng) -> Ranked:
    """In the order in which they are tried alone, or else preempted together."""
    return (victims.alone or victims.rank)(state, job, able, rng)


def within_bounds(state: State, vc: VirtualCluster, claim: Claim, victims: Victims, jobs: Iterable[Job]) -> list[Job]:
    """Without those that were preempted as often as the cap P or the policy's own budget allows."""
    capped, cap = RULES[claim].capped, vc.policy.cap

    def may_go(job: Job) -> bool:
        return not (capped and job.preempted_for_trial >= cap) and not victims.spares(state, job)

    return [job for job in jobs if all(may_go(one) for one in jobs_with(state, job))]


def lowest_first(jobs: Iterable[Job]) -> list[Job]:
    """Sort by priority, the lowest first; of equals, the job that was submitted last."""
    return sorted(jobs, key=lambda job: (job.priority, -job.id))


def _one(state: State, vc: VirtualCluster, job: Job, order: list[Job]) -> tuple[list[Job], Plan] | None:
    """The first of these that makes room alone, and the plan; None: none does."""
    plans = (([other], plan_without(state, vc, job, [other])) for other in order)
    return next(((chosen, plan) for chosen, plan in plans if plan is not None), None)


def _preempting(plan: Plan, mine: set[int], job: Job, vc: VirtualCluster, decision: Decision | None) -> Plan:
    """The plan, with the virtual cluster's own runs preempted where it would have them reclaimed."""
    shown = decision or unscored_decision(job, vc, len(mine))
    actions: list[Action] = []
    for action in plan:
        if isinstance(action, Reclaim) and action.job_id in mine and not action.beyond:
            actions.append(Preempt(action.job_id, job.id, vc.policy.cap, shown))
        elif isinstance(action, AddEarmark):
            actions.append(replace(action, decision=shown))
        else:
            actions.append(action)
    return tuple(actions)


def unscored_decision(job: Job, vc: VirtualCluster, considered: int) -> Decision:
    """The decision, for the story, of a choice that goes by no score."""
    policy = vc.policy
    return Decision(job.id, 0, job.spec.demand, policy.name, policy.s, policy.cap, 0.0, 0, considered, ())


def _sparing_the_lazy(state: State, vc: VirtualCluster, job: Job, chosen: list[Job], plan: Plan) -> Plan:
    """The job's plan, for which these leave. The lazy ones among them stay where they are, without their guarantee, unless
    there are no other cells for the job than those that they are in."""
    stay = [other for other in chosen if other.id in state.active and _is_lazy(state, other)]
    while stay:
        sparing = plan_without(state, vc, job, chosen, stay)
        if sparing is None:
            return plan
        leave = {one for action in sparing if isinstance(action, Reclaim) for one in jobs_together(state, action.job_id)}
        if not any(other.id in leave for other in stay):
            return sparing
        stay = [other for other in stay if other.id not in leave]
    return plan


def _is_lazy(state: State, job: Job) -> bool:
    return all(one.launch_spec.cells.lazy for one in jobs_with(state, job))
