"""How much faster an elastic job would be with more tasks, by what was measured at the sizes that it has had (Gandiva, 3.2).

A job whose rate is known at two sizes is taken to follow a power of the size: twice the tasks made it so much faster, and will
again. With one size or none, it is expected to be as many times as fast as it gets larger.
"""

from math import log

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Remember
from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import memo_of
from scheduler_service.policies.gandiva.slicing.probes import NAME

LEAST_GAIN = 0.05
"""A job that is known to gain less than this part of its rate does not grow: the restart costs more."""


def progress_subject(job_id: int) -> str:
    """The subject of the memo about the mini-batch times of an elastic job at the sizes that it has had."""
    return f"progress/{job_id}"


def note_progress(state: State, vc: str, node: int) -> Proposals:
    """Remembers what was measured last of the elastic jobs on this node, before they have another size."""
    for job_id in sorted({key.job_id for key in state.runs_on.get(node, ())}):
        job = state.jobs.rows[job_id]
        if job.spec.elastic and job.profile is not None and job.spec.vc == vc:
            times = _mini_batches(state, job)
            value = tuple(part for tasks in sorted(times) for part in (tasks, times[tasks]))
            memo = memo_of(state, progress_subject(job_id))
            if value and (memo is None or memo.value != value):
                yield (Remember(NAME, progress_subject(job_id), value, job_id),)


def _mini_batches(state: State, job: Job) -> dict[int, Micros]:
    """The mini-batch time that was measured last, by number of tasks."""
    memo, found = memo_of(state, progress_subject(job.id)), dict[int, Micros]()
    if memo is not None:
        found = dict(zip(map(int, memo.value[::2]), map(int, memo.value[1::2]), strict=True))
    each = job.spec.gang[0].demand.devices
    if job.profile is not None and each and job.profile.devices >= each:
        found[job.profile.devices // each] = job.profile.mini_batch_us
    return found


def gain(state: State, job: Job, tasks: int) -> float:
    """Which part of its present rate the job would gain with so many tasks."""
    size = job.spec.gang[0].size
    return float((tasks / size) ** _exponent(_mini_batches(state, job))) - 1


def _exponent(times: dict[int, Micros]) -> float:
    """The power of the size that the rate follows, by the two largest sizes that are known."""
    if len(times) < 2:
        return 1.0
    small, large = sorted(times)[-2:]
    return min(max(log(times[small] / times[large]) / log(large / small), 0.0), 1.0)
