"""A job for which the scheduler can do nothing, since the database refuses it, is set aside: held, with the reason."""

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.messages import Accepted, SetAside
from scheduler_service.core.model import EventKind, JobState, Reason
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def set_aside(state: State, event: SetAside, now: Micros) -> Accepted:
    """A job that runs goes on, and none of its deadlines comes any more. It starts again once somebody has released it."""
    job = state.jobs.rows.get(event.job_id)
    if job is None or job.set_aside:
        return Accepted(event.job_id)
    drop_earmarks(state, now, job.id, "the job is set aside")
    log_event(state, now, job.id, EventKind.SET_ASIDE, run=job.run, reason=Reason.HELD, text=event.why)
    job = changed(job, held=True, set_aside=event.why)
    if job.state is JobState.QUEUED:
        job = changed(job, reason=Reason.HELD, detail=event.why, cause_job=0)
    state.put(state.jobs, job.id, job)
    return Accepted(event.job_id)
