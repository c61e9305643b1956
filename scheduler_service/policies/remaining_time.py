"""How much longer a job is expected to run: for as long as its estimate says, but never longer than its time limit."""

from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State


def remaining(state: State, job: Job, now: Micros) -> Micros | None:
    """How much longer the job is expected to run, given that it runs on from now; None where nobody knows. It has taken longer
    than expected: 0. One that was told to leave is gone at the end of its grace period."""
    runs = state.runs_of(job.id)
    leaves = [run.stop_us + run.stop_grace_us for run in runs if run.stop_us is not None]
    if leaves:
        return max(max(leaves) - now, 0)
    expected = min(filter(None, (job.spec.estimate_us, job.time_limit_us)), default=None)
    if expected is None:
        return None
    began = [run.started_us for run in runs if run.started_us is not None]
    return max(expected - job.ran_us - (now - min(began) if began else 0), 0)
