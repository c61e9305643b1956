"""One matching of queued jobs to slots, and what of it starts now (Algorithms 1 and 2)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Micros
from scheduler_service.policies.allox.slots import Ints, Kinds
from scheduler_service.policies.allox.ways import Way
from scheduler_service.policies.matching.problem import NEVER, Problem
from scheduler_service.policies.matching.solve import solve


class Waiting(NamedTuple):
    """A queued job and what each of its configurations needs."""

    job: Job
    ways: list[Way]
    kinds: list[int]
    """By configuration."""


class Matched(NamedTuple):
    starts: list[Way]
    """Jobs that are the first on a slot that is free now, in the configuration that was chosen; the longest first."""
    free_at: list[Ints]
    """By kind: when its slots are free after all jobs of the matching."""


def waiting(job: Job, of: list[Way], kinds: Kinds) -> Waiting:
    return Waiting(job, of, [kinds.number(way.job) for way in of])


def match(jobs: Sequence[Waiting], free_at: Sequence[Ints], now: Micros) -> Matched:
    """The matching of least cost. A job that no slot can run is left out."""
    times = np.full((len(jobs), len(free_at)), NEVER, np.int64)
    fastest: dict[tuple[int, int], Way] = {}
    for row, one in enumerate(jobs):
        for way, kind in zip(one.ways, one.kinds, strict=True):
            if way.time_us < times[row, kind]:
                times[row, kind] = way.time_us
                fastest[row, kind] = way
    found = solve(Problem(times, tuple(free_at), np.array([one.job.submitted_us for one in jobs], np.int64)))
    now_starting = np.flatnonzero(found.first & (found.start <= now)).tolist()
    starts = [fastest[row, int(found.kind[row])] for row in now_starting]
    after = [slots.copy() for slots in free_at]
    placed = np.flatnonzero(found.kind >= 0)
    for kind, slots in enumerate(after):
        here = placed[found.kind[placed] == kind]
        np.maximum.at(slots, found.slot[here], found.start[here] + times[here, kind])
    return Matched(starts, after)
