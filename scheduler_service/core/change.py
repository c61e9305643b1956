"""The few changes that both what happens (`observe`) and what is decided (`enact`) are made of."""

from scheduler_service.core.job import (
    EventKind,
    Job,
    JobEvent,
    JobState,
    NodeState,
    OperationPhase,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.rows import changed
from scheduler_service.core.state import State
from scheduler_service.core.values import Micros, Vector, add, least, sub


def tell(state: State, now: Micros, job_id: int, kind: EventKind, **facts: object) -> None:
    """Adds a line to the job's story."""
    state.record(JobEvent(job_id, now, kind, **facts))  # type: ignore[arg-type]  # the fields of JobEvent


def end_job(
    state: State, now: Micros, job: Job, to: JobState, reason: Reason, run: Run | None = None, detail: str = ""
) -> None:
    """Gives the job its one end and drops what was kept for it."""
    drop_earmark(state, now, job.id, "the job ended")
    code, signal = (run.exit_code, run.exit_signal) if run else (0, 0)
    ended = changed(job, state=to, reason=reason, detail=detail, cause_job=0, ended_us=now, exit_code=code, exit_signal=signal)
    state.put(state.jobs, job.id, ended)
    node = run.node if run else 0
    tell(
        state,
        now,
        job.id,
        EventKind.ENDED,
        run=job.run,
        node=node,
        reason=reason,
        exit_code=code,
        exit_signal=signal,
        text=detail,
    )


def requeue(state: State, now: Micros, job: Job, run: Run, reason: Reason, cause_job: int = 0, detail: str = "") -> None:
    """Puts a job that has run back to the top of its queue (FitGpp section 3)."""
    queued = changed(
        job,
        state=JobState.QUEUED,
        reason=reason,
        detail=detail,
        cause_job=cause_job,
        requeued=True,
        exit_code=run.exit_code,
        exit_signal=run.exit_signal,
    )
    state.put(state.jobs, job.id, queued)
    facts = {"exit_code": run.exit_code, "exit_signal": run.exit_signal, "text": detail}
    tell(state, now, job.id, EventKind.REQUEUED, run=run.run, node=run.node, reason=reason, cause_job=cause_job, **facts)


def stop_run(state: State, now: Micros, run: Run, why: StopReason, grace_us: Micros, cause_job: int = 0) -> Run:
    """Tells a run to leave. A second reason replaces the first; the grace period counts from the first."""
    stopping = changed(
        run,
        phase=RunPhase.STOPPING,
        stop_reason=why,
        stop_grace_us=run.stop_grace_us if run.stop_us is not None else grace_us,
        stop_us=run.stop_us if run.stop_us is not None else now,
        stop_for=cause_job,
    )
    state.put(state.runs, run.key, stopping)
    return stopping


def end_run(state: State, now: Micros, run: Run, **outcome: object) -> Run:
    """Ends a run: its devices are idle again, and what it held goes first to the earmarks that it was promised to."""
    ended: Run = changed(run, phase=RunPhase.ENDED, ended_us=now, **outcome)  # type: ignore[arg-type]  # fields of Run
    state.put(state.runs, run.key, ended)
    for index in run.devices:
        device = state.devices.rows[(run.node, index)]
        state.put(state.devices, (run.node, index), changed(device, group=tuple(k for k in device.group if k != run.key)))
    released = run.demand
    for operation_id in state.promised_by.get(run.key, ()):
        released = sub(released, _fill_earmark(state, now, operation_id, run.key, released))
    return ended


def _fill_earmark(state: State, now: Micros, operation_id: int, victim: RunKey, released: Vector) -> Vector:
    """Moves what the earmark still misses from what was released; returns what it took."""
    operation = state.operations.rows[operation_id]
    taken = least(released, sub(operation.want, operation.kept))
    victims = tuple(key for key in operation.victims if key != victim)
    ready = not victims
    filled = changed(
        operation,
        kept=add(operation.kept, taken),
        victims=victims,
        phase=OperationPhase.READY if ready else operation.phase,
        deadline_us=now + state.settings.earmark_ttl_us if ready else None,
    )
    state.put(state.operations, operation_id, filled)
    return taken


def drop_earmark(state: State, now: Micros, job_id: int, why: str, starts_on: int = 0) -> None:
    """Frees what is kept for the job, if anything is. Victims that were told to leave go on leaving.

    Where the job starts on the very node (`starts_on`) the earmark has done its work, which is no news for the story.
    """
    operation_id = state.earmark_of.get(job_id)
    if operation_id is None:
        return
    operation = state.operations.rows[operation_id]
    state.put(state.operations, operation_id, None)
    if operation.node != starts_on:
        tell(state, now, job_id, EventKind.EARMARK_DROPPED, node=operation.node, text=why)


def state_of(run: Run, node_state: NodeState) -> JobState:
    """The state of a job whose run is active."""
    if node_state is NodeState.SILENT:
        return JobState.UNREACHABLE
    return {
        RunPhase.STARTING: JobState.STARTING,
        RunPhase.RUNNING: JobState.RUNNING,
        RunPhase.STOPPING: JobState.STOPPING,
    }[run.phase]
