"""The ways in which a job can run: its configurations, and how long each takes."""

from typing import NamedTuple

from scheduler_service.core.model import Job
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.policies.remaining_time import work_left


class Way(NamedTuple):
    job: Job
    """As if it had this configuration alone."""
    time_us: Micros
    """How long it would run from its last launch that is over; at least a second."""


def ways(job: Job, unknown_us: Micros) -> list[Way]:
    """One for each configuration, in the user's order. One without an estimate is taken to run for `unknown_us` in all."""
    return [Way(one, time) for one, time in zip(job.in_each_configuration(), times(job, unknown_us), strict=True)]


def times(job: Job, unknown_us: Micros) -> list[Micros]:
    """How long each of these ways takes."""
    return [_time(job, number, unknown_us) for number in range(len(job.spec.alternatives) + 1)]


def _time(job: Job, configuration: int, unknown_us: Micros) -> Micros:
    left = work_left(job, configuration)
    return max(unknown_us - job.ran_us if left is None else left, SECOND)
