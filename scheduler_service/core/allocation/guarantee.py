"""Guaranteed or opportunistic: how a run holds what it holds, and how that changes."""

from scheduler_service.core.allocation.bindings import entitled, left
from scheduler_service.core.allocation.transitions import shorten_grace, stop_job
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import Reclaim
from scheduler_service.core.model import EventKind, Reason, Run, StopReason
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.values import SECOND, Micros, mask_of
from scheduler_service.core.model.virtual_clusters import Guarantee
from scheduler_service.core.state.eligibility import why_not
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def reclaim(state: State, action: Reclaim, now: Micros) -> None:
    """An opportunistic job leaves, all of its tasks, for one that has a right to its devices: no cap and no minimum run time
    bounds this, and its grace period is the site's at most, also where it leaves already for another reason, which stays. Or a
    guaranteed one does for another of its own virtual cluster that is before it by priority, where that goes by priority."""
    job, claimant = state.jobs.rows.get(action.job_id), state.jobs.rows.get(action.for_job)
    runs = state.runs_of(action.job_id)
    require(job is not None and bool(runs), f"job {action.job_id} does not run")
    assert job is not None
    require(not all(leaves_in_time(state, run) for run in runs), f"job {job.id} is leaving already")
    if claimant is None:
        raise PlanRefused(f"there is no job {action.for_job}")
    guaranteed = any(run.guaranteed for run in runs)
    yields = state.order_for(job).claim is Claim.PRIORITY and why_not(state, Claim.PRIORITY, claimant, job, runs) is None
    if not yields and (refusal := why_not(state, Claim.GUARANTEED, claimant, job, runs)) is not None:
        raise PlanRefused(refusal)
    opportunistic = claimant.spec.guarantee is Guarantee.OPPORTUNISTIC
    require(not opportunistic or (yields and not guaranteed), f"job {claimant.id} has no right to what job {job.id} holds")
    most = None if guaranteed else state.settings.reclaim_grace_us
    first, text = runs[0], ""
    if first.phase.exits_soon and most is not None:
        for run in runs:
            shorten_grace(state, now, run, most)
        text = f"it was leaving already, and has {most / SECOND:g} s left for it"
    else:
        stop_job(state, now, job, StopReason.RECLAIMED, Reason.RECLAIMED, action.for_job, most_us=most)
    log_event(state, now, job.id, EventKind.RECLAIMED, run=first.run, node=first.node, cause_job=action.for_job, text=text)


def leaves_in_time(state: State, run: Run) -> bool:
    """Whether the run is leaving, and to reclaim what it holds would not have it leave sooner."""
    if not run.phase.exits_soon:
        return False
    latest = state.cluster.clock_us + state.settings.reclaim_grace_us
    return run.guaranteed or run.stop_us is None or run.stop_us + run.stop_grace_us <= latest


def promote(state: State, job_id: int, now: Micros) -> None:
    """It goes on where it is, as guaranteed."""
    job, runs = state.jobs.rows.get(job_id), state.runs_of(job_id)
    require(job is not None and bool(runs), f"job {job_id} does not run")
    assert job is not None
    for run in runs:
        require(not run.phase.exits_soon, f"job {job_id} is leaving")
        require(not run.guaranteed, f"job {job_id} is guaranteed already")
        require(entitled(state, job, run.node, mask_of(run.devices)), f"job {job_id} holds devices of others")
        state.put(state.runs, run.key, changed(run, guaranteed=True))
    log_event(state, now, job_id, EventKind.GUARANTEED, run=runs[0].run, node=runs[0].node)


def demote(state: State, job_id: int, now: Micros, cause_job: int = 0, text: str = "") -> None:
    """It goes on where it is, until somebody who has a right to its devices needs them."""
    runs = state.runs_of(job_id)
    require(bool(runs) and all(run.guaranteed for run in runs), f"job {job_id} is not guaranteed")
    for run in runs:
        state.put(state.runs, run.key, changed(run, guaranteed=False))
    for run in runs:
        left(state, run)
    log_event(state, now, job_id, EventKind.OPPORTUNISTIC, run=runs[0].run, node=runs[0].node, cause_job=cause_job, text=text)
