"""Time limits of jobs that take turns: they count the time in which a job may compute, so they move as its part changes."""

from collections.abc import Iterable

from scheduler_service.core.model.launch_time import limit_at
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State


def move_limits(state: State, now: Micros, jobs: Iterable[int]) -> None:
    """Moves the time limits of jobs for which another part of the time counts from now on."""
    for job_id in sorted(jobs):
        job = state.jobs.rows[job_id]
        if not job.time_limit_us:
            continue
        runs = state.runs_of(job_id)
        stopped = any(run.phase.exits_soon for run in runs)
        limit = None if stopped else limit_at(job, runs, now)
        if limit != job.limit_us:
            state.put(state.jobs, job_id, changed(job, limit_us=limit))
