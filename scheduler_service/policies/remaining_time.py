"""How much longer a job is expected to run: for as long as its estimate says, but never longer than its time limit."""

from scheduler_service.core.model import Job
from scheduler_service.core.model.launch_time import executed_us, first_of, part_of
from scheduler_service.core.model.values import WHOLE, Micros
from scheduler_service.core.operations.estimators import expected_us
from scheduler_service.core.state.holdings import group_of
from scheduler_service.core.state.state import State


def remaining(state: State, job: Job, now: Micros) -> Micros | None:
    """How much longer the job is expected to run, given that it runs on from now; None if that is unknown, 0 if it has taken
    longer than expected. A job that was told to stop is gone at the end of its grace period."""
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
    if any(run.is_parked for run in runs):
        return None  # it is unknown when it resumes
    first = first_of(runs)
    part = WHOLE if first is None else part_of(first)
    left = max(left - executed_us(runs, now), 0)
    if part == WHOLE or not left:
        return left
    return left * WHOLE // part if part else None


def remaining_together(state: State, job: Job, now: Micros) -> Micros | None:
    """How much longer the last of the jobs that share the job's devices is expected to run; None if it is unknown of one."""
    if (group := group_of(state, job.id)) is None:
        return remaining(state, job, now)
    jobs = (state.jobs.rows[job_id] for job_id in {key.job_id for key in group.members()})
    each = [remaining(state, one, now) for one in jobs]
    known = [left for left in each if left is not None]
    return max(known) if len(known) == len(each) else None


def expected_end(state: State, job: Job, now: Micros, unknown_us: Micros) -> Micros:
    """When a running job, and those that share its devices, are expected to end, always after now. A job of unknown length is
    taken to take `unknown_us` in all; one that takes longer than expected, to end at the next moment."""
    left = remaining_together(state, job, now)
    if left is None:
        left = unknown_us - (now - job.started_us if job.started_us is not None else 0)
    return now + max(left, 1)


def work_left(job: Job, configuration: int) -> Micros | None:
    """How long the job would take, counted from the end of its last launch, if it ran in this configuration, by its estimates;
    None without an estimate. What it did in another configuration counts as a share of what it would take there in all.
    Negative if it has run for longer than expected."""
    if not job.spec.alternatives:
        whole = expected_us(job, 0)
        return whole - job.ran_us if whole else None
    estimates = [expected_us(job, number) for number in range(len(job.spec.alternatives) + 1)]
    whole = estimates[configuration]
    if not whole:
        return None
    done = sum(ran / (estimate or whole) for ran, estimate in zip(job.ran_in, estimates, strict=False))
    return round(whole * (1 - done))
