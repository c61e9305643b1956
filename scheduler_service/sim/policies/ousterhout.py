"""The rows of a share group as an Ousterhout matrix: in each row, as many of its jobs execute as have separate devices."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scheduler_service.core.model import RunKey
from scheduler_service.core.model.sharing import Row

Device = tuple[int, int]
"""Node and index."""


class Member(NamedTuple):
    """A job of the group: all of its tasks execute together."""

    runs: tuple[RunKey, ...]
    devices: frozenset[Device]


def rows_of(members: Iterable[Member]) -> tuple[Row, ...]:
    """As few rows as a greedy choice finds, the largest jobs first. Then each row is filled up with jobs whose devices are idle
    in it, those first that are in the fewest rows: a device is idle only in rows in which no job that uses it can execute.

    >>> a, b, c = (Member((RunKey(n, 1),), frozenset({(1, d)})) for n, d in ((1, 0), (2, 0), (3, 1)))
    >>> [[key.job_id for key in row.runs] for row in rows_of([a, b, c])]
    [[1, 3], [2, 3]]
    """
    jobs = sorted(members, key=lambda job: (-len(job.devices), job.runs))
    rows: list[list[Member]] = []
    for job in jobs:
        row = next((row for row in rows if _fits(job, row)), None)
        if row is None:
            rows.append([job])
        else:
            row.append(job)
    count = dict.fromkeys(jobs, 1)
    for row in rows:
        for job in sorted(jobs, key=lambda job: (count[job], job.runs)):
            if job not in row and _fits(job, row):
                row.append(job)
                count[job] += 1
    return tuple(Row(tuple(sorted(key for job in row for key in job.runs))) for row in rows)


def _fits(job: Member, row: Sequence[Member]) -> bool:
    return all(job.devices.isdisjoint(other.devices) for other in row)
