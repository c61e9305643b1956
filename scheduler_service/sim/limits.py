"""Limits of a simulation. A case beyond them is refused before it begins, because it would fail halfway, or never end."""

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import AfterValidator

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.sim.jobs import SimJob

LARGEST = 2**62
"""The largest amount: the engine's numbers have 64 bits. A simulation that should end by then has as much again in reserve."""
LONGEST_S = 1e10
"""Three centuries: a longer setting is a mistake."""
LONGEST_H = LONGEST_S // 3600
LATEST_S = 10**12
"""The latest time and the longest duration in a trace, so that a sum of two is never too large."""
MOST_JOBS = 10_000_000
"""The maximum number of jobs; they take 20 GB."""
MOST_TASKS = 100_000
"""The maximum number of tasks of a job."""


def range_validator(low: float, high: float) -> AfterValidator:
    """A validator of a number's range."""

    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"it must be from {low:g} to {high:g}, and is {value:g}")
        return value

    return AfterValidator(check)


Rate = Annotated[float, range_validator(1e-6, 1e9)]
"""A number per hour, or a factor: almost 0 would take forever, and almost infinity is used as a divisor."""


def in_time(jobs: Iterable[SimJob], each_us: Micros) -> Iterator[SimJob]:
    """Yield the jobs. Raises ValueError at a job with which they could last longer than a simulation can: one after another,
    each with its grace period and `each_us` more."""
    whole = 0
    for number, job in enumerate(jobs, 1):
        whole += job.work_us + job.spec.grace_us + each_us
        if job.submit_us + whole > LARGEST:
            when = f"at {job.submit_us / SECOND:g} s, " if job.submit_us else ""
            raise ValueError(
                f"workload: with job {number} (of {job.user}, {when}for {job.work_us / SECOND:g} s) the jobs may last until "
                f"{(job.submit_us + whole) / SECOND:.3g} s, and a simulation ends at {LARGEST / SECOND:.3g} s at most: look "
                "for times that are too long (also delays and decide_every), and for arrivals that are too slow"
            )
        yield job
