"""Consistency check of operations that are about to be loaded, with the jobs and runs that they change; see `load_check`."""

from collections.abc import Iterator, Mapping

from scheduler_service.core.model import Job, JobState, OperationKind, OperationPhase, Run, RunKey
from scheduler_service.core.model.operations import Operation


def contradictions_of_operations(
    operations: Mapping[int, Operation], jobs: Mapping[int, Job], runs: Mapping[RunKey, Run]
) -> Iterator[str]:
    """Check that a job has at most one operation, and that it changes the job's launch."""
    active = {(key.job_id, key.run) for key in runs}
    other: dict[int, int] = {}
    for row in operations.values():
        first = other.setdefault(row.job_id, row.id)
        if first != row.id:
            yield f"job {row.job_id} has two operations, {first} and {row.id}"
        job = jobs.get(row.job_id)
        if job is None:
            yield f"operation {row.id} is of job {row.job_id}, which has ended"
        elif row.kind is OperationKind.RESIZE and row.phase is not OperationPhase.SAVING:
            waits = row.phase is OperationPhase.WAITING
            if waits != ((row.job_id, job.run) not in active) or waits != (job.state is JobState.QUEUED):
                yield f"operation {row.id} is {row.phase.name}, and job {row.job_id} is {job.state.name} at run {job.run}"
        elif (row.job_id, job.run) not in active or job.run not in (row.source.run, row.target.run if row.target else 0):
            yield f"operation {row.id} changes run {row.source}, which has ended"
        if row.target is not None and row.target not in runs:
            yield f"operation {row.id} goes to run {row.target}, which has ended"
