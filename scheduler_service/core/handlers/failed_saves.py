"""Failed saves of runs that were not told to stop."""

from scheduler_service.core.messages import SaveFailed
from scheduler_service.core.model import EventKind
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def save_failed(state: State, event: SaveFailed, now: Micros) -> None:
    """Logs a failed save. Nothing is logged for a run that has ended: its end says whether it saved."""
    run = state.runs.rows.get(event.key)
    if run is None or run.job_id not in state.jobs.rows:
        return
    times = f", {event.failures} times so far" if event.failures > 1 else ""
    last = f"; its last checkpoint is of step {event.step}" if event.step >= 0 else ""
    text = f"it could not save{times} ({event.why}){last}. It goes on, and tries again"
    log_event(state, now, run.job_id, EventKind.SAVE_FAILED, run=run.run, node=run.node, text=text)
