"""A problem as the solver sees it: the jobs that some slot can run, and the slots of each kind in the order of time."""

from typing import Final, NamedTuple

import numpy as np

from scheduler_service.policies.allox.matching.problem import NEVER, Ints, Problem

FAR: Final = np.int64(1 << 60)
"""Beyond every cost. Two of them can be added."""


class Instance(NamedTuple):
    times: Ints
    """Jobs x kinds; FAR where a job cannot run."""
    longest_first: tuple[Ints, ...]
    """For each kind all jobs, as long as they take on it. Of equal ones the last to arrive is first."""
    slots: tuple[Ints, ...]
    """For each kind, when its slots are free, ascending from `base`. At most one more than there are jobs, as prices need."""
    sums: tuple[Ints, ...]
    """The total cost of the first 0, 1, 2, ... of these slots."""
    jobs: Ints
    """Which jobs of the problem these are: the last to arrive is first."""
    ranked: tuple[Ints, ...]
    """Which slots of the problem these are."""
    base: int
    """The earliest time that a slot is free."""


def instance(problem: Problem) -> Instance:
    times, free_at, arrived = problem
    usable = (times != NEVER) & np.array([len(slots) > 0 for slots in free_at], dtype=bool)
    jobs = np.argsort(-arrived, kind="stable")
    jobs = jobs[usable[jobs].any(axis=1)]
    times = np.where(usable, times, FAR)[jobs]
    longest_first = tuple(np.argsort(-of_kind, kind="stable") for of_kind in times.T)
    base = min((int(slots.min()) for slots in free_at if len(slots)), default=0)
    ranked = tuple(np.argsort(slots, kind="stable")[: len(jobs) + 1] for slots in free_at)
    slots = tuple(of_kind[ranks] - base for of_kind, ranks in zip(free_at, ranked, strict=True))
    return Instance(times, longest_first, slots, tuple(map(_sums, slots)), jobs, ranked, base)


def with_earlier_slots(instance: Instance, times: int) -> Instance:
    """The same instance with slots that are free this many times sooner."""
    slots = tuple(of_kind // times for of_kind in instance.slots)
    return instance._replace(slots=slots, sums=tuple(map(_sums, slots)))


def _sums(slots: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(slots)))
