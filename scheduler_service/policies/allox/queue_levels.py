"""Levels of the queue: trials are above all other jobs, and a higher priority is above a lower one.

Jobs of a higher level are matched before those of a lower one.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from scheduler_service.core.model import Job, JobClass
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.settings import Settings as EngineSettings
from scheduler_service.core.state.queue_keys import OWN_LANES, is_in_queue
from scheduler_service.core.state.queue_order import QueueKey, QueueOrder
from scheduler_service.core.state.state import State


def level_of(job: Job) -> tuple[bool, int]:
    """The level of a job; the highest level is the least."""
    return job.spec.job_class is not JobClass.TRIAL, -job.priority


def by_level(job: Job, _memo: Memo | None, _settings: EngineSettings) -> QueueKey:
    """Trials first, then by priority. The matching decides which job of a level is next."""
    return *level_of(job), job.id


ORDER = QueueOrder(by_level)
"""The order of the queue if no samples are taken; otherwise it is `sampling.FIRST`."""


def queued_jobs(state: State, vc: str) -> Iterator[Job]:
    """All queued jobs that wait for slots of the scope, by level."""
    return (state.jobs.rows[key[-1]] for lane in OWN_LANES for key in state.waiting(vc, lane))


def queue_length(state: State, vc: str) -> int:
    """The total length of all queues; a job may be in several of them."""
    return sum(len(queue) for lane in OWN_LANES for queue in state.queues.get((vc, lane), {}).values())


def is_longer(state: State, vc: str, most: float) -> bool:
    """Whether more than `most` jobs are queued; in a virtual cluster, with nothing kept for them."""
    return queue_length(state, vc) > most and (
        not vc or sum(is_waiting(state, job.id) for job in queued_jobs(state, vc)) > most
    )


def highest_levels(waiting: Iterable[Job], most: int) -> list[Job]:
    """The jobs of the highest levels, all of each; `most` of them together at most. `waiting`: by level."""
    found: list[Job] = []
    for _, level in groupby(waiting, key=level_of):
        jobs = list(islice(level, most - len(found) + 1))
        if len(found) + len(jobs) > most:
            break
        found += jobs
    return found


def is_waiting(state: State, job_id: int) -> bool:
    """Whether the job is in its queue, with nothing kept for it anywhere."""
    job = state.jobs.rows.get(job_id)
    return job is not None and is_in_queue(job) and job_id not in state.earmarks_of
