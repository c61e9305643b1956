"""Has policies note what they must remember: memos about jobs that began or ceased to run, and memos that are due."""

from collections.abc import Callable, Collection, Generator, Iterable

from scheduler_service.core.messages import Plan, Remember
from scheduler_service.core.model import Job
from scheduler_service.core.state.state import State

Notes = Callable[[State, Job], Iterable[Remember]]
"""See `stages.Stages.remember`."""


def take_notes(state: State, remember: Notes, again: Collection[int] = ()) -> Generator[Plan, str | None, set[int]]:
    """Before and after queues are served; then also of those jobs (`again`) that were noted before. Returns the jobs. Costs
    what changed, not what is live."""
    jobs = {*state.turned, *again}
    for at in sorted(state.due_memos):
        memo = state.memos.rows[at]
        job = state.jobs.rows.get(memo.job_id)
        if job is None or state.order_for(job).policy != memo.policy:
            yield (Remember(*at, None),)  # the job's virtual cluster has another policy now
        else:
            jobs.add(job.id)
    for job_id in sorted(jobs):
        if (job := state.jobs.rows.get(job_id)) is not None:
            notes = tuple(remember(state, job))
            if notes:
                yield notes
    return jobs
