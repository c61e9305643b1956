"""The basic changes of jobs and runs, used both for what happens (`observe`) and for what is decided (`enact`)."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from scheduler_service.core.allocation import vacating
from scheduler_service.core.allocation.bindings import give_back, release_cells
from scheduler_service.core.allocation.earmarks import drop_earmarks, fill_earmark
from scheduler_service.core.allocation.operations import cut_short, operation_of
from scheduler_service.core.allocation.share_groups import leave
from scheduler_service.core.model import (
    Dependency,
    DependencyKind,
    EventKind,
    Job,
    JobState,
    OperationKind,
    OperationPhase,
    Reason,
    Run,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.launch_time import parked_us, with_part
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import WHOLE, Micros, Vector, add, sub
from scheduler_service.core.state.holdings import devices_released
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

# Looking up a member of an enumeration costs as much as making a small object: those that every job needs are looked up once,
# here and in other modules.
_RUNNING, _OVER = JobState.RUNNING, RunPhase.ENDED
_ENDED, _NONE = EventKind.ENDED, Reason.NONE


# ---- the end of jobs ---------------------------------------------------------------------------------------------------


def end_job(
    state: State, now: Micros, job: Job, to: JobState, reason: Reason, detail: str = "", cause_job: int = 0, node: int = 0
) -> None:
    """Ends the job, once. Jobs that depend on it may start, or end with it.

    If it is an element, its array counts it.
    """
    over = _end(state, now, job, to, reason, detail, cause_job, node)
    if not over.array_job and over.id not in state.dependents:  # nearly always
        return
    ended = deque([over])
    while ended:
        over = ended.popleft()
        for waiting_id in sorted(state.dependents.get(over.id, ())):
            waiting = state.jobs.rows[waiting_id]
            mine = [d for d in waiting.waits_for if d.job_id == over.id]
            if all(holds(d.kind, over.state) for d in mine):
                left = tuple(d for d in waiting.waits_for if d.job_id != over.id)
                why = {} if waiting.held else waits(left)
                state.put(state.jobs, waiting.id, with_changes(waiting, waits_for=left, **why))
            else:
                text = f"job {over.id} ended as {over.state.name}"
                ended.append(_end(state, now, waiting, JobState.CANCELLED, Reason.DEPENDENCY_NEVER, text, over.id))
        if over.array_job:
            array = count_element(state, now, over)
            if array is not None:
                ended.append(array)


def _end(state: State, now: Micros, job: Job, to: JobState, reason: Reason, detail: str, cause_job: int, node: int = 0) -> Job:
    if job.id in state.earmarks_of:
        drop_earmarks(state, now, job.id, "the job ended")
    if state.vacating_of:
        vacating.not_queued(state, job.id)
    ended = with_changes(
        job,
        state=to,
        reason=reason,
        detail=detail,
        cause_job=cause_job,
        ended_us=now,
        eligible_us=None,
        limit_us=None,
        start_by_us=None,
        waits_for=(),
    )
    state.put(state.jobs, job.id, ended)
    for at in sorted(state.memos_of.get(job.id, ())):
        state.put(state.memos, at, None)
    log_event(
        state,
        now,
        job.id,
        _ENDED,
        run=job.run,
        node=node,
        reason=reason,
        cause_job=cause_job,
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        text=detail,
    )
    return ended


def holds(kind: DependencyKind, end: JobState) -> bool:
    """Whether a job that ended in this state satisfies a dependency of this kind."""
    if kind is DependencyKind.AFTER_ANY:
        return True
    return (end is JobState.SUCCEEDED) == (kind is DependencyKind.AFTER_OK)


def waits(dependencies: Iterable[Dependency]) -> dict[str, Any]:
    """The reason to show for a job that still waits for these dependencies."""
    first = next(iter(dependencies), None)
    if first is None:
        return {"reason": Reason.NONE, "cause_job": 0, "detail": ""}
    return {"reason": Reason.DEPENDENCY, "cause_job": first.job_id, "detail": ""}


def count_element(state: State, now: Micros, element: Job) -> Job | None:
    """Counts an element that has ended in its array. Returns the array if it has ended, with its last element."""
    array = state.jobs.rows[element.array_job]
    elements, of = array.elements, array.spec.array
    assert elements is not None  # it has an element
    assert of is not None
    good = element.state is JobState.SUCCEEDED
    counted = elements._replace(
        live=elements.live - 1, succeeded=elements.succeeded + good, failed=elements.failed + (not good)
    )
    array = with_changes(array, elements=counted)
    if counted.live or (counted.begun < of.size and not array.cancel_requested):
        if array.reason is Reason.ARRAY_LIMIT:
            array = with_changes(array, reason=Reason.NONE)
        state.put(state.jobs, array.id, array)
        return None
    if array.cancel_requested:
        return _end(state, now, array, JobState.CANCELLED, Reason.CANCELLED, "", 0)
    if counted.failed:
        text = f"{counted.failed} of {of.size} elements did not succeed"
        return _end(state, now, array, JobState.FAILED, Reason.ELEMENTS_FAILED, text, 0)
    return _end(state, now, array, JobState.SUCCEEDED, Reason.EXITED, "", 0)


def requeue(
    state: State,
    now: Micros,
    job: Job,
    reason: Reason,
    cause_job: int = 0,
    detail: str = "",
    eligible_us: Micros | None = None,
    node: int = 0,
) -> None:
    """Puts a job that has run back to the top of its queue (FitGpp section 3), now or later."""
    queued = with_changes(
        job,
        state=JobState.QUEUED,
        reason=reason,
        detail=detail,
        cause_job=cause_job,
        requeued=True,
        eligible_us=eligible_us,
        verdict=Reason.NONE,
        left=False,
        rendezvous="",
    )
    state.put(state.jobs, job.id, queued)
    facts: dict[str, Any] = {"exit_code": job.exit_code, "exit_signal": job.exit_signal, "text": detail}
    log_event(state, now, job.id, EventKind.REQUEUED, run=job.run, node=node, reason=reason, cause_job=cause_job, **facts)


def with_target(job: Job) -> Job:
    """The job, whose launch has ended, with the number of tasks and the share mode of its next launch. Called once for each
    launch: the tasks that it had beyond its guarantee do not count afterwards."""
    job = job.with_share()
    return with_changes(job.with_tasks(job.queued_tasks), beyond=job.beyond) if job.resize_to or job.beyond else job


# ---- runs --------------------------------------------------------------------------------------------------------------


def stop_run(state: State, now: Micros, run: Run, why: StopReason, grace_us: Micros, cause_job: int = 0) -> Run:
    """Stops a run. A second reason replaces the first, which changes nothing for the node: the first grace period stays, and
    counts from the first stop. A parked run has none, unless it continues elsewhere: then it saves without its devices."""
    first = run.stop_us is None
    grace_us = 0 if run.is_parked and why is not StopReason.MIGRATED else grace_us
    stopping = with_changes(
        run,
        phase=RunPhase.STOPPING,
        stop_reason=why,
        stop_grace_us=grace_us if first else run.stop_grace_us,
        stop_us=now if first else run.stop_us,
        stop_for=cause_job,
        guarded_us=None,
        generation=run.generation + first,
    )
    state.put(state.runs, run.key, stopping)
    return stopping


def shorten_grace(state: State, now: Micros, run: Run, most_us: Micros) -> None:
    """Leaves a run that was told to stop at most `most_us` more. The grace period still counts from the first stop."""
    assert run.stop_us is not None  # it was told to stop
    grace_us = min(run.stop_grace_us, now - run.stop_us + most_us)
    generation = run.generation + (grace_us < run.stop_grace_us)
    shorter = with_changes(run, stop_grace_us=grace_us, generation=generation)
    state.put(state.runs, run.key, shorter)


def stop_job(
    state: State,
    now: Micros,
    job: Job,
    why: StopReason,
    reason: Reason,
    cause_job: int = 0,
    most_us: Micros | None = None,
    **facts: Any,
) -> Job:
    """Tells all of a job's tasks to stop, within its grace period (`most_us` at most), and updates the job's row, along with
    other facts."""
    if job.id in state.operation_of and why is not StopReason.MIGRATED:
        cut_short(state, now, job.id, f"the job is stopped: {why.name.lower().replace('_', ' ')}")
    vacating.stopping(state, now, job, why)
    grace_us = job.spec.grace_us if most_us is None else min(job.spec.grace_us, most_us)
    for run in state.runs_of(job.id):
        stop_run(state, now, run, why, grace_us, cause_job)
    shown = shown_state(state, job)
    if shown is JobState.STOPPING:
        facts |= {"reason": reason, "cause_job": cause_job}
    stopping: Job = with_changes(job, state=shown, limit_us=None, start_by_us=None, **facts)
    state.put(state.jobs, job.id, stopping)
    return stopping


def end_run(state: State, now: Micros, run: Run, **outcome: Any) -> Run:
    """Ends a run: its devices are idle again, and what it held goes first to the earmarks that it was promised to."""
    if state.vacating_of:
        outcome |= {"phases": vacating.phases_at_end(state, now, run)}
    ended: Run = with_changes(run, phase=_OVER, ended_us=now, guarded_us=None, **outcome)
    released = run.demand
    if run.parking is not None:
        ended, released = _no_longer_parked(ended, now), run.charged
    if run.group:
        ended, released = _end_member(state, run, ended)
    else:
        state.put(state.runs, run.key, ended)
        if run.guaranteed:
            release_cells(state, run)
    if run.key in state.measured.rows:
        state.put(state.measured, run.key, None)
    if run.key in state.switching.rows:
        state.put(state.switching, run.key, None)
    for earmark_id in state.promised_by.get(run.key, ()) if state.promised_by else ():
        released = sub(released, fill_earmark(state, now, earmark_id, run, released))
    return ended


def _no_longer_parked(run: Run, now: Micros) -> Run:
    """The row of a run that has ended, with the devices that it was given."""
    assert run.parking is not None
    over = run.parking._replace(underway=False, devices=(), since_us=None, before_us=parked_us(run, now))
    return with_changes(run, devices=run.placed_on, demand=run.asked, parking=over, parked_mib=0)


def _end_member(state: State, run: Run, ended: Run) -> tuple[Run, Vector]:
    """The row of a member of a share group that has ended, and what is free now that no other member uses it."""
    mask = devices_released(state, [run])[run.node]
    ended = with_changes(ended, group=0, parked_mib=0, turns=with_part(run, WHOLE, state.cluster.clock_us))
    state.put(state.runs, run.key, ended)
    leave(state, run)
    if run.guaranteed and mask:
        give_back(state, run.node, mask)
    return ended, add(run.charged, Vector(devices=mask.bit_count()))


def shown_state(state: State, job: Job) -> JobState:
    """The state to show for a job with an active task. All of its tasks are told to stop at the same time."""
    if job.id in state.unreachable:
        return JobState.UNREACHABLE
    if any_task(state, job.id).phase.exits_soon:
        return JobState.STOPPING
    if job.id in state.operation_of and (phase := _park_phase(state, job)) is not None:
        return _WHILE[phase][0]
    return _RUNNING if state.begun.get(job.id, 0) == len(state.active[job.id]) else JobState.STARTING


_WHILE = {
    OperationPhase.PARKING: (JobState.STOPPING, Reason.PARKED),
    OperationPhase.PARKED: (JobState.SUSPENDED, Reason.PARKED),
    OperationPhase.WAITING: (JobState.SUSPENDED, Reason.RESUMED),
    OperationPhase.RESUMING: (JobState.STARTING, Reason.RESUMED),
}
"""State and reason to show for a job in each phase of a park."""


def _park_phase(state: State, job: Job) -> OperationPhase | None:
    operation = operation_of(state, job.id)
    if operation is None:
        return None
    if operation.is_of_parked and operation.phase is OperationPhase.WARMING:
        return OperationPhase.WAITING
    return operation.phase if operation.kind is OperationKind.PARK else None


def any_task(state: State, job_id: int) -> Run:
    """One of the job's active tasks, for facts that are the same for all."""
    return state.runs.rows[next(iter(state.active[job_id]))]


_TOLD = {
    StopReason.PREEMPTED: Reason.PREEMPTED,
    StopReason.CANCELLED: Reason.CANCELLED,
    StopReason.SUSPENDED: Reason.SUSPENDED,
    StopReason.REQUEUED: Reason.REQUEUED,
    StopReason.TIME_LIMIT: Reason.TIME_LIMIT,
    StopReason.GANG: Reason.TASK_FAILED,
    StopReason.DRAINED: Reason.NODE_DRAINED,
    StopReason.RECLAIMED: Reason.RECLAIMED,
    StopReason.RESIZED: Reason.RESIZED,
    StopReason.SAMPLED: Reason.SAMPLED,
    StopReason.PARKED: Reason.PARKED,
    StopReason.MIGRATED: Reason.MIGRATED,
}


def show(state: State, job: Job) -> Job:
    """Writes the job, which has an active task, with the state and the reason that follow from its tasks. Nothing is written if
    nothing changes: otherwise a wide gang's row would be written for each of its tasks."""
    shown, reason, cause = shown_state(state, job), _NONE, 0
    if shown is JobState.UNREACHABLE:
        reason = Reason.NODE_SILENT
    elif job.id in state.operation_of and not any_task(state, job.id).phase.exits_soon:
        phase = _park_phase(state, job)
        reason = _NONE if phase is None else _WHILE[phase][1]
    elif shown is JobState.STOPPING:
        told = any_task(state, job.id)
        reason, cause = _TOLD.get(told.stop_reason or StopReason.UNCLAIMED, Reason.NONE), told.stop_for
        if told.stop_reason is StopReason.GANG and job.verdict is Reason.GANG_NOT_READY:
            reason = job.verdict
    job = with_changes(job, state=shown, reason=reason, cause_job=cause)
    if job != state.jobs.rows[job.id]:
        state.put(state.jobs, job.id, job)
    return job
