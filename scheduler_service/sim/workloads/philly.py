"""Microsoft's Philly trace."""

import csv
from collections.abc import Callable, Iterable, Iterator

from scheduler_service.core.job import JobSpec
from scheduler_service.core.values import SECOND, Vector
from scheduler_service.sim.jobs import SimJob


class BadTrace(Exception):
    """The file is no such trace; the message names the line, the column and the rule."""


def gpus_only(gpus: int) -> JobSpec:
    """A job of which only its GPUs count."""
    return JobSpec(("train",), Vector(0, 0, gpus))


def philly(lines: Iterable[str], spec: Callable[[int], JobSpec] = gpus_only) -> Iterator[SimJob]:
    """Microsoft's Philly: columns job_id, vc, submit_s, duration_s, num_gpus; in order of submit_s.

    A duration of 0 counts as one second. `spec` makes a job of a number of GPUs: the trace says nothing of CPUs, memory,
    classes or grace periods. The virtual cluster stands for its users, too: the trace names none. Raises BadTrace.
    """
    for row in csv.DictReader(lines):
        number = row.get("job_id")
        try:
            submit, duration, gpus = float(row["submit_s"]), float(row["duration_s"]), int(row["num_gpus"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadTrace(f"job {number}: submit_s, duration_s and num_gpus must be numbers ({error})") from error
        if submit < 0 or duration < 0 or gpus < 0:
            raise BadTrace(f"job {number}: submit_s, duration_s and num_gpus must not be negative")
        yield SimJob(spec(gpus), round(max(duration, 1) * SECOND), round(submit * SECOND), row["vc"], row["vc"])


def from_its_first(jobs: Iterable[SimJob]) -> list[SimJob]:
    """With times that count from the first job's submit."""
    listed = list(jobs)
    begin = min((job.submit_us for job in listed), default=0)
    return [job._replace(submit_us=job.submit_us - begin) for job in listed]
