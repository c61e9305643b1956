"""Carries events into the state, with one function for each kind. What to start or preempt next is not decided here."""

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from scheduler_service.core.allocation import vacating
from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.overdue_stops import ask_again
from scheduler_service.core.allocation.transitions import end_run, shown_state, stop_job
from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.handlers.exchange import (
    accept_requested,
    exchange_overdue,
    post_requested,
    return_requested,
    withdraw_requested,
)
from scheduler_service.core.handlers.failed_saves import save_failed
from scheduler_service.core.handlers.grace import grace_wanted, step_too_long
from scheduler_service.core.handlers.jobs import (
    cancel_requested,
    hold_requested,
    release_requested,
    requeue_requested,
    resume_requested,
    suspend_requested,
    update_requested,
)
from scheduler_service.core.handlers.migrate import migrate_requested
from scheduler_service.core.handlers.nodes import fence_requested, node_delete_requested, node_seen, node_silent
from scheduler_service.core.handlers.plans import plan_ready
from scheduler_service.core.handlers.resize import resize_requested
from scheduler_service.core.handlers.setting_aside import set_aside
from scheduler_service.core.handlers.skipped_job_ids import numbers_lost
from scheduler_service.core.handlers.submit import submit_requested
from scheduler_service.core.handlers.virtual_clusters import vc_delete_requested, vc_requested
from scheduler_service.core.lifecycle.device_faults import faults_seen
from scheduler_service.core.lifecycle.ending import task_over
from scheduler_service.core.lifecycle.exits import meaning
from scheduler_service.core.lifecycle.gangs import all_started, gang_late, task_ready
from scheduler_service.core.lifecycle.node_health import drain_requested, undrain_requested
from scheduler_service.core.messages import (
    AcceptRequested,
    Acknowledged,
    CancelRequested,
    DrainRequested,
    Due,
    Event,
    FaultsSeen,
    FenceRequested,
    GraceWanted,
    HoldRequested,
    MigrateRequested,
    MiniBatchMeasured,
    NodeDeleteRequested,
    NodeSeen,
    NodeSilent,
    NumbersLost,
    PlanReady,
    PostRequested,
    ReleaseRequested,
    Reply,
    Report,
    ReportRefused,
    RequeueRequested,
    ResizeRequested,
    ResumeRequested,
    ReturnRequested,
    RunExited,
    RunMeasured,
    RunParked,
    RunParkRefused,
    RunReady,
    RunResumed,
    RunStarted,
    SaveFailed,
    SetAside,
    StepTooLong,
    Submitted,
    SuspendRequested,
    SwitchingMeasured,
    UndrainRequested,
    UpdateRequested,
    VcDeleteRequested,
    VcRequested,
    WithdrawRequested,
)
from scheduler_service.core.model import EventKind, Job, JobState, OperationKind, Reason, Run, RunPhase, StopReason
from scheduler_service.core.model.launch_time import limit_at
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.operations import migrating, parking, resuming
from scheduler_service.core.operations.measuring import mini_batch_measured, switching_measured
from scheduler_service.core.operations.samples import begin_sample, cut_off, run_measured
from scheduler_service.core.state.queue_keys import Deadline
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def observe(state: State, event: Event, now: Micros) -> Reply:
    """Carries one event into the state.

    Raises Refused (or a subclass) if the request cannot be carried out; the caller then undoes what was done so far.
    """
    return _HANDLERS[type(event)](state, event, now)


_RUNS, _RUNNING, _NONE = RunPhase.RUNNING, JobState.RUNNING, Reason.NONE
_STARTED = EventKind.STARTED

# ---- time --------------------------------------------------------------------------------------------------------------


def act_on_deadlines(state: State, now: Micros, chosen: Sequence[Due] | None = None) -> None:
    """Acts on every deadline of the state that has passed, or on the chosen ones. Each action clears its own deadline."""
    if chosen is not None:
        for deadline in chosen:
            if deadline in state.deadlines:
                _act(state, now, *deadline[1:])
        return
    while state.deadlines and state.deadlines[0][0] <= now:
        _act(state, now, *state.deadlines[0][1:])


def _act(state: State, now: Micros, kind: Deadline, key: Any) -> None:
    match kind:
        case Deadline.EARMARK:
            earmark = state.earmarks.rows[key[0]]
            drop_earmarks(state, now, earmark.job_id, "the trial did not start on it in time")
        case Deadline.GUARD:
            run = state.runs.rows[key]
            state.put(state.runs, key, with_changes(run, guarded_us=None))
        case Deadline.STOP_OVERDUE:
            ask_again(state, now, state.runs.rows[key])
        case Deadline.ELIGIBLE:
            job = state.jobs.rows[key[0]]
            state.put(state.jobs, job.id, with_changes(job, eligible_us=None))
        case Deadline.TIME_LIMIT:
            job = state.jobs.rows[key[0]]
            log_event(state, now, job.id, EventKind.TIME_LIMIT, run=job.run, reason=Reason.TIME_LIMIT)
            stop_job(state, now, job, StopReason.TIME_LIMIT, Reason.TIME_LIMIT)
        case Deadline.GANG_START:
            gang_late(state, now, state.jobs.rows[key[0]])
        case Deadline.SAMPLE:
            cut_off(state, now, state.jobs.rows[key[0]])
        case Deadline.OPERATION:
            operation = state.operations.rows[key[0]]
            is_move = operation.kind is OperationKind.MIGRATE
            (migrating.give_up_overdue if is_move else parking.act_on_overdue_phase)(state, now, operation)
        case Deadline.MEMO:
            memo = state.memos.rows[key]
            state.put(state.memos, key, with_changes(memo, due_us=None, due=True))
        case Deadline.WINDOW | Deadline.POSTING_EXPIRES | Deadline.POSTING_BEGINS | Deadline.IDLE:
            exchange_overdue(state, now, kind, key)
        case _:
            assert_never(kind)


# ---- reports of runs ---------------------------------------------------------------------------------------------------


def take_report(state: State, event: Report, now: Micros) -> Acknowledged:
    """Takes a report, once for each (node, boot, sequence). One about a run that has ended, or is on another node, changes only
    that count."""
    run, stale = _new(state, event)
    if run is not None:
        _REPORTS[type(event)](state, event, run, now)
    return Acknowledged(event.node, event.sequence, stale)


def report_refused(state: State, event: ReportRefused, now: Micros) -> Acknowledged:
    """Counts a report that could not be carried out, and sets its job aside."""
    report = event.report
    run, stale = _new(state, report)
    if run is not None:
        set_aside(state, SetAside(run.job_id, event.why), now)
    return Acknowledged(report.node, report.sequence, stale)


def _new(state: State, event: Report) -> tuple[Run | None, bool]:
    """The active run that a report is about, if the report is new; and whether the report comes from another boot."""
    node_id = state.node_ids.get(event.node)
    if node_id is None or (node := state.nodes.rows[node_id]).boot_id != event.boot_id:
        return None, True
    sequence, last = event.sequence, node.sequence
    if sequence <= last:
        return None, False
    if sequence != last + 1:
        raise FailedPrecondition(
            "REPORT_GAP", f"node {node.name} sent report {sequence} after {last}: connect again and send those between"
        )
    state.put(state.nodes, node_id, with_changes(node, sequence=sequence))
    run = state.runs.rows.get(event.key)
    return (run if run is not None and run.node == node_id else None), False


def _run_started(state: State, event: RunStarted, run: Run, now: Micros) -> None:
    if run.started_us is not None or run.phase.awaits_source:
        return
    running = not run.phase.exits_soon
    guard = state.settings.min_run_us
    phase = _RUNS if running else run.phase
    guarded = now + guard if guard and running else None
    run = with_changes(run, phase=phase, started_us=now, log_path=event.log_path, program=event.program, guarded_us=guarded)
    state.put(state.runs, run.key, run)
    before = state.jobs.rows[run.job_id]
    job = all_started(state, before)
    shown = shown_state(state, job)
    limited = job.time_limit_us and job.limit_us is None and running
    first = job.started_us is None
    job = _with_saved_on(state, job, run)
    if job.sampling is not None and job.sampling.until_us is None and running:
        job = with_changes(job, sampling=begin_sample(job.sampling, now))
    if first or limited or shown is not job.state or job is not before:  # else a wide gang's row would be written for each task
        job = with_changes(
            job,
            state=shown,
            reason=_NONE if shown is _RUNNING else job.reason,
            started_us=now if first else job.started_us,
            limit_us=limit_at(job, (run,), now) if limited else job.limit_us,
        )
        state.put(state.jobs, job.id, job)
    text = f"task {run.task}" if job.launch_spec.gang else event.restored
    log_event(state, now, job.id, _STARTED, run=run.run, node=run.node, text=text)
    if state.operation_of:
        migrating.run_started(state, now, job.id)
    if state.vacating_of:
        vacating.end_if_started(state, now, job.id)


def _with_saved_on(state: State, job: Job, run: Run) -> Job:
    """The job, with the node that has its checkpoints from now on: older ones were fetched before it started."""
    saved_on = run.node if state.nodes.rows[run.node].checkpoints_at else 0
    return job if run.task or job.saved_on == saved_on else with_changes(job, saved_on=saved_on)


def _run_exited(state: State, event: RunExited, run: Run, now: Micros) -> None:
    how, detail = meaning(state.jobs.rows[run.job_id].spec, run, event)
    if run.phase.awaits_source:
        migrating.target_over(state, now, run, detail or "its process ended")
        return
    ended = end_run(
        state,
        now,
        run,
        exit_code=event.exit_code,
        exit_signal=event.exit_signal,
        yielded=event.yielded,
        lost=event.unknown,
        done=how is None,
        began_from=event.began_from,
        checkpoint=event.saved,
        save=event.save,
    )
    task_over(state, now, ended, how, detail, event.checkpoint, event.job_fault)


def _ready(state: State, event: RunReady, run: Run, now: Micros) -> None:
    ready_at = f"{event.address}:{event.port}"
    if run.phase.awaits_source:
        migrating.run_warmed(state, now, run, ready_at)
    else:
        task_ready(state, now, run, ready_at)


_REPORTS: dict[type[Report], Callable[[State, Any, Run, Micros], None]] = {
    RunStarted: _run_started,
    RunReady: _ready,
    RunExited: _run_exited,
    RunParked: parking.run_parked,
    RunResumed: resuming.run_resumed,
    RunParkRefused: parking.park_refused,
}


_HANDLERS: dict[type[Event], Callable[[State, Any, Micros], Reply]] = {
    **dict.fromkeys(_REPORTS, take_report),
    Submitted: submit_requested,
    NodeSeen: node_seen,
    NodeSilent: node_silent,
    FaultsSeen: faults_seen,
    NumbersLost: numbers_lost,
    SetAside: set_aside,
    ReportRefused: report_refused,
    PlanReady: plan_ready,
    RunMeasured: run_measured,
    GraceWanted: grace_wanted,
    StepTooLong: step_too_long,
    SaveFailed: save_failed,
    MiniBatchMeasured: mini_batch_measured,
    SwitchingMeasured: switching_measured,
    CancelRequested: cancel_requested,
    SuspendRequested: suspend_requested,
    ResumeRequested: resume_requested,
    HoldRequested: hold_requested,
    ReleaseRequested: release_requested,
    RequeueRequested: requeue_requested,
    ResizeRequested: resize_requested,
    MigrateRequested: migrate_requested,
    UpdateRequested: update_requested,
    DrainRequested: drain_requested,
    UndrainRequested: undrain_requested,
    FenceRequested: fence_requested,
    NodeDeleteRequested: node_delete_requested,
    VcRequested: vc_requested,
    VcDeleteRequested: vc_delete_requested,
    PostRequested: post_requested,
    WithdrawRequested: withdraw_requested,
    AcceptRequested: accept_requested,
    ReturnRequested: return_requested,
}
