"""Which jobs are preempted inside a virtual cluster for one of its trials that has no room in its cells.

Best-effort runs are preempted by their score: in FitGpp's Eqn 2, "it fits" reads here "the cells that it asks for are there
once the victim has gone".
"""

from collections.abc import Sequence
from dataclasses import replace

from scheduler_service.core.messages import Action, AddEarmark, Plan, Preempt, Reclaim, Rng
from scheduler_service.core.model import Decision, Job, JobClass
from scheduler_service.core.model.virtual_clusters import VirtualCluster
from scheduler_service.core.state.eligibility import claim_of, spared, why_not
from scheduler_service.core.state.state import State
from scheduler_service.policies.cells.guaranteed import holds_up
from scheduler_service.policies.cells.victims import by_pool, first_enough, plan_without, running, waiting_for_others
from scheduler_service.policies.remaining_time import remaining
from scheduler_service.policies.victims.fitgpp import score
from scheduler_service.policies.victims.search import Field


def may_preempt(state: State, vc: VirtualCluster) -> bool:
    """Whether one more of its trials may wait for others to leave."""
    most = vc.policy.trials_in_flight
    if most is None:
        return True
    waiting = (state.jobs.rows[job_id].spec for job_id in state.earmarks_of)
    return sum(spec.vc == vc.name and spec.job_class is JobClass.TRIAL for spec in waiting) < most


def preempt_for_trial(state: State, vc: VirtualCluster, trial: Job, rng: Rng) -> Plan | None:
    """Whom the trial has preempted, by the virtual cluster's rule; None: nobody whose going would make room. Before any run
    come jobs that wait for others to leave: to take what is kept for them is no preemption."""
    pools, policy = state.pools, vc.policy
    assert pools is not None
    if not holds_up(state, vc, trial):
        return None
    able = [job for job in running(state, vc) if may_go(state, job, trial)]
    order, decision = in_order(state, vc, trial, able, rng)
    kept = [job for job in waiting_for_others(state, vc) if may_go(state, job, trial)]
    losing = {job.id for job in kept}
    for jobs in by_pool(state, pools, [*kept, *(job for job in order if job.preempted_for_trial < policy.cap)]):
        if plan_without(state, vc, trial, jobs) is None:
            continue  # to try them one by one in vain is dear
        lose, runs = [job for job in jobs if job.id in losing], [job for job in jobs if job.id not in losing]
        found = first_enough(state, vc, trial, lose)
        if found is None and policy.name == "fitgpp":
            found = _one(state, vc, trial, runs)
        if found is None:
            found = first_enough(state, vc, trial, [*lose, *(_drawn(runs, rng) if policy.name == "fitgpp" else runs)])
        if found is not None:
            chosen, plan = found
            return plan if all(job.id in losing for job in chosen) else _preempting(plan, chosen, trial, vc, decision)
    return None


def _drawn(jobs: Sequence[Job], rng: Rng) -> list[Job]:
    """In an order that is left to chance."""
    left = list(jobs)
    return [left.pop(rng.randrange(len(left))) for _ in range(len(left))]


def may_go(state: State, job: Job, trial: Job) -> bool:
    """Whether the trial may have the job preempted now, or take what is kept for it."""
    runs = state.runs_of(job.id)
    return (
        why_not(claim_of(trial), trial, job, runs) is None
        and job.id not in state.unreachable
        and all(spared(state, run, job) is None for run in runs)
    )


def in_order(state: State, vc: VirtualCluster, trial: Job, able: list[Job], rng: Rng) -> tuple[list[Job], Decision | None]:
    """Those that may go, the best victim first."""
    if vc.policy.name == "rand":
        return _drawn(able, rng), None
    if vc.policy.name == "lrtp":
        now = state.cluster.clock_us
        longest = {job.id: remaining(state, job, now) for job in able}
        return sorted(able, key=lambda job: (-(longest[job.id] or 0), -job.id)), None
    keys = [run.key for job in able for run in state.runs_of(job.id)]
    slots = state.candidates.slots_of(keys)
    if not len(slots):
        return [], None
    field = Field(state, trial, slots, vc.policy.cap)
    scores = score(field, vc.policy.s)
    best = {int(job): float(value) for job, value in zip(field.job, scores.score, strict=True)}
    decision = Decision(
        trial=trial.id,
        node=int(field.node[0]),
        demand=trial.spec.demand,
        rule=vc.policy.name,
        s=vc.policy.s,
        cap=vc.policy.cap,
        max_size=scores.max_size,
        max_grace_us=scores.max_grace_us,
        considered=len(best),
        candidates=(),
    )
    return sorted((job for job in able if job.id in best), key=lambda job: (best[job.id], -job.id)), decision


def _one(state: State, vc: VirtualCluster, wanting: Job, order: list[Job]) -> tuple[list[Job], Plan] | None:
    """The first of these that makes room alone, and the plan; None: none does."""
    plans = (([job], plan_without(state, vc, wanting, [job])) for job in order)
    return next(((chosen, plan) for chosen, plan in plans if plan is not None), None)


def _preempting(plan: Plan, victims: list[Job], trial: Job, vc: VirtualCluster, decision: Decision | None) -> Plan:
    """The plan, with the virtual cluster's own runs preempted where it would have them reclaimed."""
    mine = {job.id for job in victims}
    shown = decision or decided(trial, vc, len(mine))
    actions: list[Action] = []
    for action in plan:
        if isinstance(action, Reclaim) and action.job_id in mine:
            actions.append(Preempt(action.job_id, trial.id, vc.policy.cap, shown))
        elif isinstance(action, AddEarmark):
            actions.append(replace(action, decision=shown))
        else:
            actions.append(action)
    return tuple(actions)


def decided(trial: Job, vc: VirtualCluster, considered: int) -> Decision:
    """What is to be told of a choice that goes by no score."""
    policy = vc.policy
    return Decision(trial.id, 0, trial.spec.demand, policy.name, policy.s, policy.cap, 0.0, 0, considered, ())
