"""A job that the database refuses is set aside: held, with the reason, since the scheduler can do nothing for it."""

from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.messages import Accepted, SetAside
from scheduler_service.core.model import EventKind, JobState, Reason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def set_aside(state: State, event: SetAside, now: Micros) -> Accepted:
    """Holds the job. If it runs, it continues without any of its deadlines. It starts again only once a user releases it."""
    job = state.jobs.rows.get(event.job_id)
    if job is None or job.set_aside:
        return Accepted(event.job_id)
    drop_earmarks(state, now, job.id, "the job is set aside")
    log_event(state, now, job.id, EventKind.SET_ASIDE, run=job.run, reason=Reason.HELD, text=event.why)
    job = with_changes(job, held=True, set_aside=event.why)
    if job.state is JobState.QUEUED:
        job = with_changes(job, reason=Reason.HELD, detail=event.why, cause_job=0)
    state.put(state.jobs, job.id, job)
    return Accepted(event.job_id)
