"""What each event means for the state. One function an event; what to start or preempt next is not decided here."""

from scheduler_service.core.change import drop_earmark, end_job, end_run, requeue, state_of, stop_run, tell
from scheduler_service.core.errors import AlreadyExists, FailedPrecondition, NotFound
from scheduler_service.core.job import (
    EventKind,
    Job,
    JobState,
    Reason,
    Run,
    RunPhase,
    StopReason,
)
from scheduler_service.core.messages import (
    Accepted,
    Acknowledged,
    CancelRequested,
    Event,
    NodeSeen,
    NodeSilent,
    Reply,
    RunExited,
    RunStarted,
    Submitted,
)
from scheduler_service.core.nodes import node_seen, node_silent
from scheduler_service.core.rows import changed
from scheduler_service.core.state import State
from scheduler_service.core.values import Micros, Vector


def observe(state: State, event: Event, now: Micros) -> Reply:
    """Carries one event into the state.

    Raises Refused (and its kinds) when the request cannot be done; the caller undoes what was done so far.
    """
    match event:
        case Submitted():
            return submitted(state, event, now)
        case CancelRequested():
            return cancel_requested(state, event, now)
        case RunStarted():
            return run_started(state, event, now)
        case RunExited():
            return run_exited(state, event, now)
        case NodeSeen():
            return node_seen(state, event, now)
        case NodeSilent():
            node_silent(state, event, now)
            return None


def overdue(state: State, now: Micros) -> None:
    """Acts on every deadline of the state that has passed."""
    while state.deadlines and state.deadlines[0][0] <= now:
        operation = state.operations.rows[state.deadlines[0][1]]
        drop_earmark(state, now, operation.job_id, "the trial did not start on it in time")


# ---- users -------------------------------------------------------------------------------------------------------------


def submitted(state: State, event: Submitted, now: Micros) -> Accepted:
    if event.request_id and (known := state.requests.get((event.user, event.request_id))) is not None:
        check_same_request(state.jobs.rows[known], event)
        return Accepted(known)
    if state.nodes.rows and not state.room.could_ever_fit(event.spec.demand):
        raise FailedPrecondition(
            "NO_NODE_LARGE_ENOUGH",
            f"no node of this cluster has {describe(event.spec.demand)}, even when it is empty; "
            "ask for less, or see `ebb node list` for what there is",
        )
    cluster = state.cluster
    job = Job(cluster.next_job, event.spec, event.user, event.request_id, now)
    state.put(state.cluster_table, 0, changed(cluster, next_job=job.id + 1))
    state.put(state.jobs, job.id, job)
    tell(state, now, job.id, EventKind.SUBMITTED)
    return Accepted(job.id)


def check_same_request(known: Job, event: Submitted) -> None:
    """Raises AlreadyExists unless the request_id came with the spec that it first came with."""
    asked = event.spec if event.grace_given else changed(event.spec, grace_us=known.spec.grace_us)
    if known.spec != asked:
        raise AlreadyExists(
            "REQUEST_ID_REUSED",
            f"request_id {known.request_id!r} was already used for job {known.id}, which asks for something else; "
            "take a new request_id for a new job",
            job_id=str(known.id),
        )


def describe(amount: Vector) -> str:
    """For messages: "8 devices, 2 CPUs and 1024 MiB"."""
    return f"{amount.devices} devices, {amount.cpu_milli / 1000:g} CPUs and {amount.memory_mib} MiB"


def cancel_requested(state: State, event: CancelRequested, now: Micros) -> Accepted:
    job = state.jobs.rows.get(event.job_id)
    if job is None:
        raise NotFound("NO_LIVE_JOB", f"job {event.job_id} is not live", job_id=str(event.job_id))
    if job.cancel_requested:
        return Accepted(job.id)
    tell(state, now, job.id, EventKind.CANCEL_REQUESTED, run=job.run)
    if job.state is JobState.QUEUED:
        end_job(state, now, changed(job, cancel_requested=True), JobState.CANCELLED, Reason.CANCELLED)
        return Accepted(job.id)
    run = state.runs.rows[state.active_run[job.id]]
    stopping = stop_run(state, now, run, StopReason.CANCELLED, job.spec.grace_us)
    shown = state_of(stopping, state.nodes.rows[run.node].state)
    reason = Reason.CANCELLED if shown is JobState.STOPPING else job.reason
    state.put(state.jobs, job.id, changed(job, cancel_requested=True, state=shown, reason=reason, cause_job=0))
    return Accepted(job.id)


# ---- reports of runs ---------------------------------------------------------------------------------------------------


def run_started(state: State, event: RunStarted, now: Micros) -> Acknowledged:
    run, stale = _reported(state, event)
    if run is not None and run.started_us is None:
        phase = RunPhase.RUNNING if run.phase is RunPhase.STARTING else run.phase
        run = changed(run, phase=phase, started_us=now, log_path=event.log_path)
        state.put(state.runs, run.key, run)
        job = state.jobs.rows[run.job_id]
        shown = state_of(run, state.nodes.rows[run.node].state)
        started = job.started_us if job.started_us is not None else now
        reason = Reason.NONE if shown is JobState.RUNNING else job.reason
        state.put(state.jobs, job.id, changed(job, state=shown, reason=reason, started_us=started))
        tell(state, now, job.id, EventKind.STARTED, run=run.run, node=run.node)
    return Acknowledged(event.node, event.sequence, stale)


def run_exited(state: State, event: RunExited, now: Micros) -> Acknowledged:
    run, stale = _reported(state, event)
    if run is None:
        return Acknowledged(event.node, event.sequence, stale)
    codes = {"exit_code": event.exit_code, "exit_signal": event.exit_signal, "yielded": event.yielded, "lost": event.unknown}
    ended = end_run(state, now, run, **codes)
    job = state.jobs.rows[run.job_id]
    if job.cancel_requested:
        end_job(state, now, job, JobState.CANCELLED, Reason.CANCELLED, ended)
    elif event.launch_error:
        end_job(state, now, job, JobState.FAILED, Reason.LAUNCH_FAILED, ended, event.launch_error)
    elif run.stop_reason is StopReason.PREEMPTED and (event.yielded or event.unknown or event.exit_code or event.exit_signal):
        how = {"exit_code": event.exit_code, "exit_signal": event.exit_signal, "text": _how(event)}
        tell(state, now, job.id, EventKind.VACATED, run=run.run, node=run.node, cause_job=run.stop_for, **how)
        requeue(state, now, job, ended, Reason.PREEMPTED, run.stop_for)
    elif event.yielded:
        requeue(state, now, job, ended, Reason.YIELDED, detail="it saved its work and left, though Ebb had not asked it to")
    elif event.unknown:
        detail = "the process is gone and nothing on its node knows how it ended"
        end_job(state, now, job, JobState.FAILED, Reason.EXIT_UNKNOWN, ended, detail)
    elif event.exit_signal:
        end_job(state, now, job, JobState.FAILED, Reason.SIGNALLED, ended)
    else:
        end_job(state, now, job, JobState.FAILED if event.exit_code else JobState.SUCCEEDED, Reason.EXITED, ended)
    return Acknowledged(event.node, event.sequence, stale)


def _how(event: RunExited) -> str:
    if event.yielded:
        return "saved its work and left"
    if event.unknown:
        return "gone; nobody knows how it ended"
    return f"ended by signal {event.exit_signal}" if event.exit_signal else f"left with exit code {event.exit_code}"


def _reported(state: State, event: RunStarted | RunExited) -> tuple[Run | None, bool]:
    """The active run that a report is about, if the report is new; and whether it comes from another boot.

    A report is counted once by (node, boot, sequence). One about a run that is over, or on another node, changes nothing
    but that count.
    """
    node_id = state.node_ids.get(event.node)
    if node_id is None or state.nodes.rows[node_id].boot_id != event.boot_id:
        return None, True
    node = state.nodes.rows[node_id]
    if event.sequence <= node.sequence:
        return None, False
    if event.sequence != node.sequence + 1:
        raise FailedPrecondition(
            "REPORT_GAP",
            f"node {node.name} sent report {event.sequence} after {node.sequence}: connect again and send those between",
        )
    state.put(state.nodes, node_id, changed(node, sequence=event.sequence))
    run = state.runs.rows.get(event.key)
    return (run if run is not None and run.node == node_id else None), False
