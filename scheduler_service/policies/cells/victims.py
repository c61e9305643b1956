"""Who leaves inside a virtual cluster, for one of its own jobs that has no room in its cells.

Two rules. A trial has best-effort runs preempted by their score: in FitGpp's Eqn 2, "it fits" reads here "the cells that it
asks for are there once the victim has gone". And where the virtual cluster goes by priority, whoever has more of it has the
runs with the least leave; a lazy one stays where it is as opportunistic. By either, what is kept for jobs that have not started
yet is taken before any run has to leave.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from scheduler_service.core.allocation.bindings import bindings_of
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.queries import nodes_in
from scheduler_service.core.enact import enact
from scheduler_service.core.messages import Action, AddEarmark, Demote, DropEarmark, Plan, Preempt, Reclaim, Rng, Wait
from scheduler_service.core.model import Decision, Job, JobClass, Reason, RunKey
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.model.virtual_clusters import Guarantee, VirtualCluster
from scheduler_service.core.state.eligibility import claim_of, spared, why_not
from scheduler_service.core.state.state import State
from scheduler_service.policies.cells.guaranteed import Gone, holds_up, plan_in_cells
from scheduler_service.policies.remaining_time import remaining
from scheduler_service.policies.victims.fitgpp import score
from scheduler_service.policies.victims.search import Field

BY_PRIORITY = "priority"
PREEMPTING = ("fitgpp", "lrtp", "rand")


def running(state: State, vc: VirtualCluster) -> list[Job]:
    """The jobs that run in the virtual cluster's cells, none of whose tasks is leaving; in order of their ids."""
    pools = state.pools
    assert pools is not None
    nodes = {node for _, binding in bindings_of(state, vc.id) for node, _ in nodes_in(pools, binding)}
    ids = {key.job_id for node in nodes for key in state.runs_on.get(node, ()) if _counts(state, vc, key)}
    whole = (job_id for job_id in sorted(ids) if all(_counts(state, vc, run.key) for run in state.runs_of(job_id)))
    return [state.jobs.rows[job_id] for job_id in whole]


def _counts(state: State, vc: VirtualCluster, key: RunKey) -> bool:
    run = state.runs.rows[key]
    return run.guaranteed and run.vc == vc.name and not run.phase.exits_soon


def waiting_for_others(state: State, vc: VirtualCluster) -> list[Job]:
    """Those for which something is kept in the virtual cluster's cells; in order of their ids."""
    jobs = (state.jobs.rows[job_id] for job_id in sorted(state.earmarks_of))
    return [job for job in jobs if job.spec.vc == vc.name and job.spec.guarantee is not Guarantee.OPPORTUNISTIC]


def leaves_of(state: State, pools: Pools, jobs: Iterable[Job]) -> Gone:
    """By pool and slot, what is free once these have gone."""
    gone: Gone = defaultdict(dict)
    for job in jobs:
        for node, mask in _has(state, job):
            position = pools.positions.get(node)
            if position is not None:
                slots = gone[position.pool]
                slots[position.slot] = slots.get(position.slot, 0) | positions(position, mask)
    return gone


def by_pool(state: State, pools: Pools, jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs pool by pool, each list in the order given."""
    found: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        position = pools.positions.get(_has(state, job)[0][0])
        if position is not None:
            found[position.pool].append(job)
    return [found[name] for name in sorted(found)]


def _has(state: State, job: Job) -> list[tuple[int, Mask]]:
    """What the job holds, or what is kept for it: nodes and devices."""
    kept = (state.earmarks.rows[i] for i in sorted(state.earmarks_of.get(job.id, ())))
    return [(run.node, mask_of(run.devices)) for run in state.runs_of(job.id)] or [
        (earmark.node, earmark.mask) for earmark in kept
    ]


# ---- for a trial -------------------------------------------------------------------------------------------------------


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
        if _plan_without(state, vc, trial, jobs) is None:
            continue  # to try them one by one in vain is dear
        lose, runs = [job for job in jobs if job.id in losing], [job for job in jobs if job.id not in losing]
        found = _enough(state, vc, trial, lose)
        if found is None and policy.name == "fitgpp":
            found = _one(state, vc, trial, runs)
        if found is None:
            found = _enough(state, vc, trial, [*lose, *(_drawn(runs, rng) if policy.name == "fitgpp" else runs)])
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
    runs, claim = state.runs_of(job.id), claim_of(state, trial)
    return (
        claim is not None
        and why_not(state, claim, trial, job, runs) is None
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
    plans = (([job], _plan_without(state, vc, wanting, [job])) for job in order)
    return next(((chosen, plan) for chosen, plan in plans if plan is not None), None)


def _enough(state: State, vc: VirtualCluster, wanting: Job, order: list[Job]) -> tuple[list[Job], Plan] | None:
    """The first of these that make room together, without any that is not needed, and the plan; None: all of them do not."""
    chosen, plan = list[Job](), None
    for job in order:
        chosen.append(job)
        if (plan := _plan_without(state, vc, wanting, chosen)) is not None:
            break
    if plan is None:
        return None
    for job in list(chosen):
        others = [other for other in chosen if other is not job]
        fewer = _plan_without(state, vc, wanting, others) if others else None
        if fewer is not None:
            chosen, plan = others, fewer
    return chosen, plan


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


# ---- by priority -------------------------------------------------------------------------------------------------------


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
        if why_not(state, Claim.PRIORITY, job, other, ()) is None
    ]
    for jobs in by_pool(state, pools, lower):
        found = None if _plan_without(state, vc, job, jobs) is None else _enough(state, vc, job, jobs)
        if found is not None:
            return _sparing_the_lazy(state, vc, job, *found)
    return None


def _sparing_the_lazy(state: State, vc: VirtualCluster, wanting: Job, chosen: list[Job], plan: Plan) -> Plan:
    """The job's plan, for which these leave. The lazy ones among them stay where they are, without their guarantee, unless
    there are no other cells for the job than those that they are in."""
    stay = [job for job in chosen if job.spec.cells.lazy and job.id in state.active]
    while stay:
        sparing = _plan_without(state, vc, wanting, chosen, stay)
        if sparing is None:
            return plan
        leave = {action.job_id for action in sparing if isinstance(action, Reclaim)}
        if not any(job.id in leave for job in stay):
            return sparing
        stay = [job for job in stay if job.id not in leave]
    return plan


def _plan_without(state: State, vc: VirtualCluster, wanting: Job, gone: list[Job], stay: Sequence[Job] = ()) -> Plan | None:
    """The job's plan, once these have gone, but for those that stay as opportunistic. Those that wait themselves lose what is
    kept for them, and whom they have had leave goes on leaving, for this job then. None: there is no room for it."""
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
