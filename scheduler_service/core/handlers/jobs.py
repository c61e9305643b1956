"""Users' requests about their jobs. Each is safe to repeat; a refusal names the state that forbids the request."""

from dataclasses import replace
from typing import Any

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.operations import operation_of
from scheduler_service.core.allocation.transitions import any_task, end_job, requeue, stop_job, waits
from scheduler_service.core.errors import FailedPrecondition, NotFound, PlanRefused
from scheduler_service.core.handlers import grace, share_mode
from scheduler_service.core.handlers.admission import check_limit
from scheduler_service.core.handlers.submit import still_awaited
from scheduler_service.core.lifecycle.ending import is_over, time_out
from scheduler_service.core.messages import (
    Accepted,
    CancelRequested,
    HoldRequested,
    ReleaseRequested,
    RequeueRequested,
    ResumeRequested,
    SuspendRequested,
    UpdateRequested,
)
from scheduler_service.core.model import EventKind, Job, JobState, OperationKind, OperationPhase, Reason, RunPhase, StopReason
from scheduler_service.core.model.launch_time import limit_at
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.operations import moving_parked, parking, resuming
from scheduler_service.core.state.queue_keys import ACTIVE, PAUSES, startable
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_AN_ARRAY = "it is an array, whose elements are jobs: "


def live(state: State, job_id: int) -> Job:
    job = state.jobs.rows.get(job_id)
    if job is None:
        raise NotFound("NO_LIVE_JOB", f"job {job_id} is not live", job_id=str(job_id))
    return job


def refusal(job: Job, what: str, instead: str) -> FailedPrecondition:
    """The error for a job whose state forbids the request; `instead` says what to do."""
    return FailedPrecondition(
        "WRONG_STATE",
        f"job {job.id} is {job.state.name} and cannot be {what}; {instead}",
        job_id=str(job.id),
        state=job.state.name,
    )


def cancel_requested(state: State, event: CancelRequested, now: Micros) -> Accepted:
    job = live(state, event.job_id)
    if job.cancel_requested:
        return Accepted(job.id)
    log_event(state, now, job.id, EventKind.CANCEL_REQUESTED, run=job.run)
    job = with_changes(job, cancel_requested=True)
    if job.elements is not None and job.elements.live:
        drop_earmarks(state, now, job.id, "the array is cancelled")
        state.put(
            state.jobs, job.id, with_changes(job, state=JobState.STOPPING, reason=Reason.CANCELLED, cause_job=0, detail="")
        )
        for element in sorted(state.elements_of.get(job.id, ())):
            cancel_requested(state, CancelRequested(element), now)
    elif job.state in ACTIVE or job.id in state.active:
        stop_job(state, now, job, StopReason.CANCELLED, Reason.CANCELLED, suspend_requested=False)
    else:
        end_job(state, now, job, JobState.CANCELLED, Reason.CANCELLED)
    return Accepted(job.id)


def suspend_requested(state: State, event: SuspendRequested, now: Micros) -> Accepted:
    job = live(state, event.job_id)
    operation = operation_of(state, job.id)
    if operation is not None and not job.cancel_requested and parking.keep_for_user(state, operation) and job.suspend_requested:
        log_event(state, now, job.id, EventKind.SUSPEND_REQUESTED, run=job.run, reason=Reason.PARKED, text="it stays parked")
    if job.suspend_requested:
        return Accepted(job.id)
    operation = operation_of(state, job.id)
    if operation is not None and operation.phase is OperationPhase.WAITING and not job.cancel_requested:
        log_event(state, now, job.id, EventKind.SUSPEND_REQUESTED, run=job.run)
        resuming.stay_parked(state, now, operation)
        return Accepted(job.id)
    if operation is not None and operation.is_of_parked and operation.phase is OperationPhase.WARMING:
        log_event(state, now, job.id, EventKind.SUSPEND_REQUESTED, run=job.run)
        moving_parked.stay_parked(state, now, operation)
        return Accepted(job.id)
    if job.elements is not None:
        more = ", and hold it to keep others from starting" if job.state is JobState.QUEUED else ""
        raise refusal(job, "suspended", f"{_AN_ARRAY}suspend those{more}")
    if job.state not in ACTIVE:
        raise refusal(job, "suspended", "hold a queued job to keep it from starting")
    if job.cancel_requested:
        raise refusal(job, "suspended", "it is being cancelled")
    why_not = _park(state, event, job, now) if event.park or event.park_only else ""
    if why_not is None:
        return Accepted(job.id)
    text = f"not parked: {why_not}; it saves its work and leaves" if why_not else ""
    log_event(state, now, job.id, EventKind.SUSPEND_REQUESTED, run=job.run, text=text)
    stop_job(state, now, job, StopReason.SUSPENDED, Reason.SUSPENDED, suspend_requested=True)
    return Accepted(job.id)


def _park(state: State, event: SuspendRequested, job: Job, now: Micros) -> str | None:
    """Begins to park the job. Returns why it cannot be parked; None: it can, as far as is known. Raises FailedPrecondition if
    its user wants it parked and nothing else."""
    try:
        parking.park(state, now, job, by_user=True, fallback=not event.park_only)
    except PlanRefused as refused:
        if event.park_only:
            text = f"job {job.id} cannot be parked: {refused}; suspend it without --park-only to have it save and leave"
            raise FailedPrecondition("CANNOT_PARK", text, job_id=str(job.id)) from refused
        return str(refused)
    log_event(state, now, job.id, EventKind.SUSPEND_REQUESTED, run=job.run, reason=Reason.PARKED, text="by a park")
    return None


def resume_requested(state: State, event: ResumeRequested, now: Micros) -> Accepted:
    """Resumes a suspended job. If it is still stopping, takes the suspension back: it queues as soon as it has stopped."""
    job = live(state, event.job_id)
    operation = operation_of(state, job.id)
    if operation is not None and operation.kind is OperationKind.PARK:
        if job.suspend_requested:
            log_event(state, now, job.id, EventKind.RESUMED, run=job.run)
        resuming.unpark(state, now, operation)
    elif operation is not None and operation.is_of_parked:
        pass  # it continues elsewhere
    elif job.state is JobState.SUSPENDED:
        if is_over(job):
            raise refusal(job, "resumed", "its time limit is over: give it a longer one first")
        log_event(state, now, job.id, EventKind.RESUMED, run=job.run)
        requeue(state, now, with_changes(job, suspend_requested=False), Reason.RESUMED)
    elif job.suspend_requested:
        log_event(state, now, job.id, EventKind.RESUMED, run=job.run)
        state.put(state.jobs, job.id, with_changes(job, suspend_requested=False))
    elif not (job.requeued or leaves(state, job, StopReason.SUSPENDED) or _was_parked(state, job)):
        raise refusal(job, "resumed", "only a suspended job can")  # the others may be the repetition of a call that did it
    return Accepted(job.id)


def _was_parked(state: State, job: Job) -> bool:
    return any(run.parking is not None for run in state.runs_of(job.id))


def hold_requested(state: State, event: HoldRequested, now: Micros) -> Accepted:
    job = live(state, event.job_id)
    if job.held:
        return Accepted(job.id)
    if job.state is not JobState.QUEUED:
        instead = "suspend a running job to have it save its work and leave"
        if job.state is JobState.SUSPENDED:
            instead = "it stays aside until it is resumed"
        elif job.elements is not None:
            instead = _AN_ARRAY + "all have begun: suspend those that run"
        raise refusal(job, "held", instead)
    log_event(state, now, job.id, EventKind.HELD, run=job.run)
    drop_earmarks(state, now, job.id, "the job is held")
    state.put(state.jobs, job.id, with_changes(job, held=True, reason=Reason.HELD, detail="", cause_job=0))
    return Accepted(job.id)


def release_requested(state: State, event: ReleaseRequested, now: Micros) -> Accepted:
    job = live(state, event.job_id)
    if not job.held:
        return Accepted(job.id)
    log_event(state, now, job.id, EventKind.RELEASED, run=job.run)
    still = _waits_still(job) if job.state is JobState.QUEUED else {}
    state.put(state.jobs, job.id, with_changes(job, held=False, set_aside="", **still))
    return Accepted(job.id)


def _waits_still(job: Job) -> dict[str, Any]:
    """The reason to show for a queued job that is no longer held."""
    if job.eligible_us is not None:
        return {"reason": Reason.RETRYING, "detail": PAUSES}
    if job.elements is not None and not startable(job):
        return {"reason": Reason.ARRAY_LIMIT}
    return waits(job.waits_for)


def requeue_requested(state: State, event: RequeueRequested, now: Micros) -> Accepted:
    job = live(state, event.job_id)
    if event.run and event.run != job.run:
        return Accepted(job.id)  # that one has left already
    if job.state is JobState.QUEUED and job.eligible_us is not None:  # "try again now"
        log_event(state, now, job.id, EventKind.REQUEUE_REQUESTED, run=job.run, text="the pause before its retry is over")
        state.put(state.jobs, job.id, with_changes(job, eligible_us=None))
        return Accepted(job.id)
    if job.state is JobState.QUEUED and job.requeued:
        return Accepted(job.id)
    if job.elements is not None:
        raise refusal(job, "put back into its queue", _AN_ARRAY + "put those back that run")
    parked = job.id in state.active and _is_parked(state, job)
    if not parked and (job.state not in ACTIVE or job.cancel_requested or job.suspend_requested):
        raise refusal(job, "put back into its queue", "only a running job can; resume a suspended one")
    if leaves(state, job, StopReason.TIME_LIMIT):
        raise refusal(job, "put back into its queue", "its time limit is over")
    if leaves(state, job):
        return Accepted(job.id)  # to queue again, unless it failed
    log_event(state, now, job.id, EventKind.REQUEUE_REQUESTED, run=job.run, text=event.why)
    stop_job(state, now, job, StopReason.REQUEUED, Reason.REQUEUED, suspend_requested=False)
    return Accepted(job.id)


def _is_parked(state: State, job: Job) -> bool:
    """Whether its run is parked. The job may be requeued although it is suspended: its process is killed, and it starts again
    from its checkpoint."""
    return any_task(state, job.id).phase is RunPhase.PARKED


def leaves(state: State, job: Job, why: StopReason | None = None) -> bool:
    """Whether the job was told to stop, for this reason or for any."""
    return any(run.stop_reason is not None and why in (None, run.stop_reason) for run in state.runs_of(job.id))


def update_requested(state: State, event: UpdateRequested, now: Micros) -> Accepted:
    job = live(state, event.job_id)
    said = []
    if event.time_limit_us not in (None, job.time_limit_us) and leaves(state, job, StopReason.TIME_LIMIT):
        raise refusal(job, "given another time limit", "the one that it has is over, and it leaves")
    if event.priority is not None and event.priority != job.priority:
        said.append(f"priority {job.priority} -> {event.priority}")
        job = with_changes(job, priority=event.priority)
    if event.time_limit_us is not None and event.time_limit_us != job.time_limit_us:
        check_limit(state.settings, job.spec.job_class, event.time_limit_us)
        said.append(f"time limit {_limit(job.time_limit_us)} -> {_limit(event.time_limit_us)}")
        job = _with_limit(state, job, event.time_limit_us)
    job, changed_grace = grace.changed_by_user(state, job, event.grace_us, event.grace_follows)
    said += [changed_grace] if changed_grace else []
    if event.skip_steps is not None and event.skip_steps != job.skip_steps:
        said.append(f"its next launch skips the steps up to {event.skip_steps}" if event.skip_steps else "no step is skipped")
        job = with_changes(job, skip_steps=event.skip_steps)
    job, changed_share = share_mode.changed_by_user(state, job, event.share)
    said += [changed_share] if changed_share else []
    if event.dependencies is not None:
        if job.state is not JobState.QUEUED or job.run or (job.elements is not None and job.elements.begun):
            raise refusal(job, "given other dependencies", "only a job that has never started can")
        waiting = still_awaited(state, event.dependencies, event.ends)
        _check_no_cycle(state, job, [d.job_id for d in waiting])
        if waiting != job.waits_for:
            said.append("dependencies " + (", ".join(f"{d.kind.name.lower()} {d.job_id}" for d in waiting) or "none"))
            job = with_changes(job, waits_for=waiting, **({} if job.held else waits(waiting)))
            if waiting:
                drop_earmarks(state, now, job.id, "the job waits for others")
    if said:
        log_event(state, now, job.id, EventKind.UPDATED, run=job.run, text="; ".join(said))
        state.put(state.jobs, job.id, job)
    for element in sorted(state.elements_of.get(job.id, ())):
        over = leaves(state, state.jobs.rows[element], StopReason.TIME_LIMIT)  # its limit is what it was
        limit = None if over else event.time_limit_us
        same = replace(event, job_id=element, time_limit_us=limit, dependencies=None, ends=())
        update_requested(state, same, now)
    if job.state is JobState.QUEUED and is_over(job):
        time_out(state, now, job)
    return Accepted(job.id)


def _limit(limit_us: Micros) -> str:
    return f"{limit_us / 1e6:g} s" if limit_us else "none"


def _with_limit(state: State, job: Job, limit_us: Micros) -> Job:
    """The job with a new limit. If it runs, that counts from the start of its launch, and ends it at once if it has passed."""
    job, runs = with_changes(job, time_limit_us=limit_us, limit_us=None), state.runs_of(job.id)
    if not runs or leaves(state, job) or _is_parked(state, job):
        return job
    return with_changes(job, limit_us=limit_at(job, runs, state.cluster.clock_us))


def _check_no_cycle(state: State, job: Job, dependencies: list[int]) -> None:
    seen: set[int] = set()
    left = dependencies
    while left:
        other = left.pop()
        if other == job.id:
            raise FailedPrecondition(
                "DEPENDENCY_CYCLE", f"job {job.id} would wait for itself, through its dependencies", job_id=str(job.id)
            )
        if other not in seen:
            seen.add(other)
            left += [d.job_id for d in state.jobs.rows[other].waits_for]
