"""Why a virtual cluster's job does not run: what it lacks in its own cells, and among idle ones."""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, takewhile

from scheduler_service.core.messages import Reclaim, Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.core.state.queue_keys import Lane, lanes_of
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.state import State
from scheduler_service.policies.chosen_stages import stages_within
from scheduler_service.policies.explain.cell_holders import waits_for_cells
from scheduler_service.policies.explain.explanation import (
    AHEAD_SHOWN,
    SPARED_SHOWN,
    Blocker,
    Explanation,
    Victim,
    count_text,
    kept_waiting,
    waiting_for_victims,
)
from scheduler_service.policies.hived.guaranteed import plan_in_cells, why_not
from scheduler_service.policies.hived.nothing_to_preempt import spared_in
from scheduler_service.policies.hived.opportunistic import looked_at, place_opportunistic, why_not_opportunistic
from scheduler_service.policies.hived.queue_membership import held_up, ways
from scheduler_service.policies.placing.joining import why_no_part
from scheduler_service.policies.queueing.nothing_to_preempt import NOT_ENOUGH


def explain_in_cells(state: State, job: Job) -> Explanation:
    """Explain why a job of a virtual cluster waits, if nothing keeps it out of its queue."""
    vc = state.vcs.rows.get(state.vc_ids.get(job.spec.vc, 0))
    if vc is None:
        return Explanation((Blocker(Reason.NEVER_IN_QUOTA, f"there is no virtual cluster {job.spec.vc}"),))
    before = list(_jobs_before(state, vc, job))
    ahead = tuple(other.id for other in before[:AHEAD_SHOWN])
    behind = f"{count_text(len(before), 'job')} before it in virtual cluster {vc.name}"
    if job.id in state.earmarks_of:
        return waiting_for_victims(state, job)  # those before it do not hold it up
    victims: tuple[Victim, ...] = ()
    lanes = lanes_of(job)
    idle = Lane.OPPORTUNISTIC in lanes and place_opportunistic(state, job) is not None
    # No job is held up for idle cells: if none would do, the jobs before it are not the reason.
    in_the_way = bool(before) and (idle or lanes[0] is not Lane.OPPORTUNISTIC)
    blockers = [Blocker(Reason.BEHIND, behind, before[0].id)] if in_the_way else []
    if Lane.OPPORTUNISTIC not in lanes or len(lanes) > 1:
        plans = (plan_in_cells(state, vc, one) for one in job.in_each_configuration())
        plan = next((plan for plan in plans if plan is not None), None)
        if plan is None:
            blockers += _waits_for_cells(state, vc, job)
        else:
            beside = [Blocker(last.reason, last.detail)] if isinstance(last := plan[-1], Wait) and last.detail else []
            if beside or stages_within(vc.policy).starts is None:
                told = [action.job_id for action in plan if isinstance(action, Reclaim)]
                victims = tuple(Victim(run.key, 0.0) for job_id in told for run in state.runs_of(job_id))
            blockers += beside if stages_within(vc.policy).starts is None else beside or [kept_waiting(job)]
    if Lane.OPPORTUNISTIC in lanes and not idle:
        wait = why_not_opportunistic(job)
        blockers.append(Blocker(wait.reason, "; ".join(filter(None, (wait.detail, why_no_part(state, job))))))
    if job.reason is Reason.NOTHING_TO_PREEMPT and not in_the_way:
        spared = spared_in(state, vc, job, SPARED_SHOWN)
        blockers.append(Blocker(job.reason, ": ".join(filter(None, (NOT_ENOUGH, spared)))))
    if blockers and (place_in_queue := stages_within(vc.policy).about(state, job)):
        said = (blockers[0].detail, place_in_queue)
        if blockers[0].holders:  # who these are is told right after the detail
            said = (place_in_queue, blockers[0].detail)
        blockers[0] = blockers[0]._replace(detail="; ".join(filter(None, said)))
    return Explanation(tuple(blockers), len(before), ahead, victims=victims)


def _waits_for_cells(state: State, vc: VirtualCluster, job: Job) -> Iterator[Blocker]:
    """One for each configuration of the job."""
    for one in job.in_each_configuration():
        blocker = waits_for_cells(state, vc, one, why_not(state, vc, one))
        if blocker.reason is Reason.BEYOND_QUOTA and (parts := why_no_part(state, one, guaranteed=True)):
            blocker = blocker._replace(detail=f"{blocker.detail}; {parts}")
        if job.spec.alternatives:
            detail = "; ".join(filter(None, (f"configuration {one.configuration}", blocker.detail)))
            blocker = blocker._replace(detail=detail)
        yield blocker


def _jobs_before(state: State, vc: VirtualCluster, job: Job) -> Iterator[Job]:
    """Jobs of its virtual cluster that are served before it, and hold it up: without those that wait for others to leave, those
    that wait for cells that there never will be, and those that wait for cells of other pools or pins."""
    pools, lane = state.pools, lanes_of(job)[0]
    assert pools is not None
    mine = {choice for _, choice in ways(pools, vc, job)}
    known: dict[Needs, bool] = {}
    for job_id in _served_before(state, vc, lane, job):
        other = state.jobs.rows[job_id]
        if other.id in state.earmarks_of:
            continue
        kind = other.needs()
        if kind not in known:
            known[kind] = lane is Lane.OPPORTUNISTIC or not mine.isdisjoint(held_up(state, vc, ways(pools, vc, other)))
        if known[kind]:
            yield other


def _served_before(state: State, vc: VirtualCluster, lane: Lane, job: Job) -> Iterable[int]:
    """In the order of `policy.serve_guaranteed`, or of opportunistic work. A policy that chooses which jobs start goes by no
    order between jobs whose keys are equal but for their ids."""
    mine, chosen = state.queue_key(job), stages_within(vc.policy)
    parts = -1 if chosen.starts is not None and lane is not Lane.OPPORTUNISTIC else None

    def keys_before(lane: Lane) -> Iterable[QueueKey]:
        return takewhile(lambda key: mine is not None and key[:parts] < mine[:parts], state.waiting(vc.name, lane))

    if lane is Lane.OPPORTUNISTIC:
        in_turn = [other.id for other in looked_at(state, vc)]
        return in_turn[: in_turn.index(job.id)] if job.id in in_turn else (key[-1] for key in keys_before(lane))
    if not chosen.trials_first:
        keys: Iterable[QueueKey] = merge(keys_before(Lane.TRIAL), keys_before(Lane.BEST_EFFORT))
    elif lane is Lane.TRIAL:
        keys = keys_before(lane)
    else:
        keys = chain(state.waiting(vc.name, Lane.TRIAL), keys_before(lane))
    return (key[-1] for key in keys)
