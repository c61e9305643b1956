"""Stories of jobs: each line of a job's story goes into the log of the step."""

from scheduler_service.core.model import Decision, EventKind, JobEvent, Reason
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State


def log_event(
    state: State,
    now: Micros,
    job_id: int,
    kind: EventKind,
    *,
    run: int = 0,
    node: int = 0,
    reason: Reason = Reason.NONE,
    cause_job: int = 0,
    exit_code: int = 0,
    exit_signal: int = 0,
    text: str = "",
    decision: Decision | None = None,
) -> None:
    """Adds a line to the job's story."""
    state.log.append(JobEvent(job_id, now, kind, run, node, reason, cause_job, exit_code, exit_signal, text, decision))
