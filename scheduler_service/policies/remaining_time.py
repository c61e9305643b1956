"""How much longer a job is expected to run: for as long as its estimate says, but never longer than its time limit."""

from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Micros
from scheduler_service.core.operations.estimators import expected_us
from scheduler_service.core.state.state import State


def remaining(state: State, job: Job, now: Micros) -> Micros | None:
    """How much longer the job is expected to run, given that it runs on from now; None where nobody knows. It has taken longer
    than expected: 0. One that was told to leave is gone at the end of its grace period."""
    runs = state.runs_of(job.id)
    leaves = [run.stop_us + run.stop_grace_us for run in runs if run.stop_us is not None]
    if leaves:
        return max(max(leaves) - now, 0)
    left = work_left(job, job.configuration)
    if job.time_limit_us:
        until_limit = job.time_limit_us - job.ran_us
        left = until_limit if left is None else min(left, until_limit)
    if job.sampling is not None:
        until_end = (job.sampling.until_us or now + job.sampling.most_us) - now
        return max(until_end if left is None else min(left, until_end), 0)
    if left is None:
        return None
    began = [run.started_us for run in runs if run.started_us is not None]
    return max(left - (now - min(began) if began else 0), 0)


def work_left(job: Job, configuration: int) -> Micros | None:
    """How long the job would take from its last launch that is over, if it ran in this configuration, by its estimates; None
    where there is none. What it did in another configuration counts as a share of what it would take there in all. Negative
    where it has run for longer than expected."""
    if not job.spec.alternatives:
        whole = expected_us(job, 0)
        return whole - job.ran_us if whole else None
    estimates = [expected_us(job, number) for number in range(len(job.spec.alternatives) + 1)]
    whole = estimates[configuration]
    if not whole:
        return None
    done = sum(ran / (estimate or whole) for ran, estimate in zip(job.ran_in, estimates, strict=False))
    return round(whole * (1 - done))
