"""Jobs that wait outside their queues until a node opens."""

from scheduler_service.core.model import Reason
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.rows import changed
from scheduler_service.core.state.resources.closed_nodes import why_closed
from scheduler_service.core.state.state import State


def review_closed_nodes(state: State) -> None:
    """Puts jobs that an open node could take now back into their old places, and notes for the others which nodes they wait
    for. Costs a look at each, after nodes have changed."""
    known: dict[Needs, str | None] = {}
    for job_id in sorted(state.beside[Reason.NODES_CLOSED]):
        job = state.jobs.rows[job_id]
        needs = job.needs()
        if needs not in known:
            waits = not state.could_take_now(job) and state.could_ever_take(job)
            known[needs] = why_closed(state, job) if waits else None
        why = known[needs]
        if why is None:
            state.put(state.jobs, job_id, changed(job, reason=Reason.NONE, detail="", cause_job=0))
        elif why != job.detail:
            state.put(state.jobs, job_id, changed(job, detail=why))
