"""SRPT, the unrealistic bound of AlloX's evaluation: the shortest remaining time first, preempting at no cost (5.1.1).

It is worked out apart from the engine, which cannot stop and move a run without its node being told and answering. At any time
the job and the configuration with the shortest remaining time run, then the next ones, as far as there are devices. Devices of
a kind count together, wherever they are, and jobs keep what they have done when they change their configuration.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler_service.core.model.values import Micros
from scheduler_service.sim.jobs import SimJob


class Piece(NamedTuple):
    """A job ran without a break in one configuration."""

    job: int
    """Its place among the jobs."""
    configuration: int
    begin_us: Micros
    end_us: Micros


class Bound(NamedTuple):
    ends_us: list[Micros]
    """By job: when it has completed."""
    pieces: list[Piece]


class Slots(NamedTuple):
    """What one configuration of every job runs on."""

    total: int
    needs: Sequence[int]
    """By job: how many it takes. All jobs have the same kinds of slots as their configurations."""


def srpt(jobs: Sequence[SimJob], slots: Sequence[Slots]) -> Bound:
    """`jobs` in the order in which they come; `slots` by the number of the configuration. The order is by the users' estimates,
    less what is done in proportion; how long a job takes is what it takes in truth."""
    estimates = [[way.estimate_us for way in job.spec.in_each_configuration()] for job in jobs]
    ends = [0] * len(jobs)
    left = [1.0] * len(jobs)
    live: set[int] = set()
    running: dict[int, tuple[int, Micros]] = {}
    pieces: list[Piece] = []
    now, come = 0, 0

    def takes(job: int, configuration: int) -> float:
        return left[job] * jobs[job].times_us[configuration]

    while come < len(jobs) or live:
        done = min((now + max(round(takes(job, at)), 0) for job, (at, _) in running.items()), default=None)
        arrival = jobs[come].submit_us if come < len(jobs) else None
        then = min(at for at in (done, arrival) if at is not None)
        for job, (configuration, _) in running.items():
            left[job] -= (then - now) / jobs[job].times_us[configuration]
        now = then
        for job in [job for job, (at, _) in running.items() if takes(job, at) < 1]:
            ends[job] = now
            live.discard(job)
            pieces.append(Piece(job, *running.pop(job), now))
        while come < len(jobs) and jobs[come].submit_us <= now:
            live.add(come)
            come += 1
        chosen = _choose(live, left, estimates, slots)
        for job in [job for job, (at, _) in running.items() if chosen.get(job) != at]:
            pieces.append(Piece(job, *running.pop(job), now))
        for job, configuration in chosen.items():
            running.setdefault(job, (configuration, now))
    return Bound(ends, pieces)


def _choose(
    live: set[int], left: Sequence[float], estimates: Sequence[Sequence[Micros]], slots: Sequence[Slots]
) -> Mapping[int, int]:
    """Which jobs run now, and in which configuration: the least remaining times that have room."""
    heap = [(left[job] * time, job, at) for job in live for at, time in enumerate(estimates[job])]
    heapq.heapify(heap)
    free = [of.total for of in slots]
    chosen: dict[int, int] = {}
    while heap and any(free):
        _, job, at = heapq.heappop(heap)
        if job not in chosen and slots[at].needs[job] <= free[at]:
            chosen[job] = at
            free[at] -= slots[at].needs[job]
    return chosen
