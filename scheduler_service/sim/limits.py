"""What a simulation can count. What is more is refused before it begins, as it would fail in its midst, or never end."""

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import AfterValidator

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.sim.jobs import SimJob

LARGEST = 2**62
"""No amount is larger: the engine's numbers have 64 bits. A simulation that is to end by then has as long again for what
nobody knows beforehand."""
LONGEST_S = 1e10
"""Three centuries: a setting that is longer is a mistake."""
LONGEST_H = LONGEST_S // 3600
LATEST_S = 10**12
"""Of a trace: no time is later, and none lasts longer, so that no two of them are too much together."""
MOST_JOBS = 10_000_000
"""So many take 20 GB."""
MOST_TASKS = 100_000
"""Of a job."""


def between(low: float, high: float) -> AfterValidator:
    """What a number may be."""

    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"it must be from {low:g} to {high:g}, and is {value:g}")
        return value

    return AfterValidator(check)


Rate = Annotated[float, between(1e-6, 1e9)]
"""How many an hour, how many times as much: what is nearly nothing takes forever, what is nearly endless is divided by."""


def in_time(jobs: Iterable[SimJob], each_us: Micros) -> Iterator[SimJob]:
    """The jobs. Raises ValueError at one with which they could last longer than a simulation can: one after another, each with
    its grace period, and `each_us` more."""
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
