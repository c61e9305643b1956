"""Guaranteed or opportunistic: how a run holds its resources, and how that changes."""

from collections.abc import Iterable, Sequence

from scheduler_service.core.allocation.bindings import is_entitled, release_cells
from scheduler_service.core.allocation.operations import cut_short
from scheduler_service.core.allocation.transitions import shorten_grace, stop_job
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import Reclaim
from scheduler_service.core.model import EventKind, Job, Reason, Run, StopReason
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import SECOND, Micros, mask_of
from scheduler_service.core.state.holdings import group_of, jobs_together, made_ready, runs_together
from scheduler_service.core.state.preemption_rights import why_not
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def reclaim(state: State, action: Reclaim, now: Micros) -> None:
    """Stops an opportunistic job, with all of its tasks, for one that has a right to its devices. No cap and no minimum run
    time applies, and its grace period is at most the site's, even if it is stopping already for another reason, which is kept.
    Or stops a guaranteed job for a more important one of its own virtual cluster, if that goes by priority."""
    job, claimant = state.jobs.rows.get(action.job_id), state.jobs.rows.get(action.for_job)
    runs = runs_together(state, action.job_id)
    require(job is not None and bool(runs), f"job {action.job_id} does not run")
    assert job is not None
    if stopped_together(state, action.job_id, action.for_job, now):
        return
    require(not all(leaves_in_time(state, run) for run in runs), f"job {job.id} is leaving already")
    if claimant is None:
        raise PlanRefused(f"there is no job {action.for_job}")
    if action.beyond:
        _reclaim_beyond(state, job, claimant, action.beyond, now)
        return
    everybody = jobs_together(state, action.job_id)  # also jobs that share devices only with a migration that gives way
    clear_of_migrations(state, action.job_id, now, f"job {claimant.id} has a right to devices of the destination")
    for job_id in everybody:
        _reclaim_job(state, state.jobs.rows[job_id], claimant, now)


def _reclaim_job(state: State, job: Job, claimant: Job, now: Micros) -> None:
    runs = state.runs_of(job.id)
    guaranteed = any(run.guaranteed for run in runs)
    yields = state.order_for(job).claim is Claim.PRIORITY and why_not(state, Claim.PRIORITY, claimant, job, runs) is None
    if not yields and (refusal := why_not(state, Claim.GUARANTEED, claimant, job, runs)) is not None:
        raise PlanRefused(refusal)
    opportunistic = claimant.spec.guarantee is Guarantee.OPPORTUNISTIC
    require(not opportunistic or (yields and not guaranteed), f"job {claimant.id} has no right to what job {job.id} holds")
    if all(leaves_in_time(state, run) for run in runs):
        return  # a member of a share group whose other members do not leave in time
    most = None if guaranteed else state.settings.reclaim_grace_us
    first, text = runs[0], ""
    if first.phase.exits_soon and most is not None:
        for run in runs:
            shorten_grace(state, now, run, most)
        text = f"it was leaving already, and has {most / SECOND:g} s left for it"
    else:
        stop_job(state, now, job, StopReason.RECLAIMED, Reason.RECLAIMED, claimant.id, most_us=most)
    log_event(state, now, job.id, EventKind.RECLAIMED, run=first.run, node=first.node, cause_job=claimant.id, text=text)


def clear_of_migrations(state: State, job_id: int, now: Micros, why: str) -> None:
    """Migrations into the share group of the job give way."""
    migrations_give_way(state, made_ready(state, job_id), now, why)


def migrations_give_way(state: State, runs: Iterable[Run], now: Micros, why: str) -> None:
    """Gives up migrations whose destinations are among these runs: their jobs keep running where they are, and lose nothing."""
    for run in runs:
        if run.awaits and run.key in state.runs.rows:  # else it was a task of a gang that has just given way
            cut_short(state, now, run.job_id, why)


def _reclaim_beyond(state: State, job: Job, claimant: Job, count: int, now: Micros) -> None:
    """Makes the job give back `count` tasks that it has beyond its guarantee: it starts again without them, as after a resize.
    This is no preemption, and no cap counts it."""
    runs, most = state.runs_of(job.id), state.settings.reclaim_grace_us
    beyond = [run for run in runs if not run.guaranteed]
    enough = guaranteed_in_part(runs) and count <= len(beyond)
    require(enough, f"job {job.id} has {len(beyond)} tasks beyond a guarantee, and not {count}")
    has_right = claimant.spec.guarantee is not Guarantee.OPPORTUNISTIC
    require(has_right, f"job {claimant.id} has no right to what job {job.id} holds")
    if (refusal := why_not(state, Claim.GUARANTEED, claimant, job, beyond)) is not None:
        raise PlanRefused(refusal)
    first, tasks = runs[0], len(job.spec.tasks())
    if first.phase.exits_soon:
        for run in runs:
            shorten_grace(state, now, run, most)
        text = f"it was leaving already, and has {most / SECOND:g} s left for it"
    else:
        job = with_changes(job, resize_to=tasks - count, beyond=max(job.beyond - count, 0))
        stop_job(state, now, job, StopReason.RESIZED, Reason.RESIZED, claimant.id, most_us=most)
        text = f"devices that it has beyond its guarantee: tasks {tasks} -> {job.resize_to}"
    log_event(state, now, job.id, EventKind.RECLAIMED, run=first.run, node=first.node, cause_job=claimant.id, text=text)


def guaranteed_in_part(runs: Sequence[Run]) -> bool:
    """Whether a job with these runs has tasks beyond its guarantee."""
    return any(run.guaranteed for run in runs) and not all(run.guaranteed for run in runs)


def stopped_together(state: State, job_id: int, for_job: int, now: Micros) -> bool:
    """Whether the job has just been stopped with another of its share group, for the same job."""
    runs = state.runs_of(job_id) if group_of(state, job_id) is not None else []
    return bool(runs) and all(run.stop_for == for_job and run.stop_us == now for run in runs)


def leaves_in_time(state: State, run: Run) -> bool:
    """Whether the run is stopping, and reclaiming its resources would not make it stop sooner."""
    if not run.phase.exits_soon:
        return False
    latest = state.cluster.clock_us + state.settings.reclaim_grace_us
    return run.guaranteed or run.stop_us is None or run.stop_us + run.stop_grace_us <= latest


def promote(state: State, job_id: int, now: Micros) -> None:
    """Makes a running job guaranteed where it is, with all jobs of its share group."""
    job = state.jobs.rows.get(job_id)
    require(job is not None and bool(state.runs_of(job_id)), f"job {job_id} does not run")
    clear_of_migrations(state, job_id, now, "those who share its devices become guaranteed")
    for one in jobs_together(state, job_id):
        job, runs = state.jobs.rows[one], state.runs_of(one)
        for run in runs:
            require(not run.phase.exits_soon, f"job {one} is leaving")
            require(not run.guaranteed, f"job {one} is guaranteed already")
            require(is_entitled(state, job, run.node, mask_of(run.devices)), f"job {one} holds devices of others")
            state.put(state.runs, run.key, with_changes(run, guaranteed=True))
        if runs[0].group:
            wants = job.spec.guarantee is not Guarantee.OPPORTUNISTIC
            require(wants, f"job {one} shares devices with job {job_id}, and is not to be guaranteed")
        log_event(state, now, one, EventKind.GUARANTEED, run=runs[0].run, node=runs[0].node)
    _set_group(state, job_id, guaranteed=True)


def demote(state: State, job_id: int, now: Micros, cause_job: int = 0, text: str = "") -> None:
    """Makes a job opportunistic where it is, with all jobs of its share group: it runs until its devices are reclaimed."""
    everybody = runs_together(state, job_id)
    require(any(run.guaranteed for run in everybody), f"job {job_id} is not guaranteed")
    clear_of_migrations(state, job_id, now, "those who share its devices are guaranteed no more")
    everybody = runs_together(state, job_id)
    for run in everybody:
        state.put(state.runs, run.key, with_changes(run, guaranteed=False))
    _set_group(state, job_id, guaranteed=False)
    for run in everybody:
        release_cells(state, run)
    for one in jobs_together(state, job_id):
        first = state.runs_of(one)[0]
        log_event(state, now, one, EventKind.OPPORTUNISTIC, run=first.run, node=first.node, cause_job=cause_job, text=text)


def _set_group(state: State, job_id: int, guaranteed: bool) -> None:
    group = group_of(state, job_id)
    if group is not None:
        state.put(state.share_groups, group.id, with_changes(group, guaranteed=guaranteed))
