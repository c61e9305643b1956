"""SRPT, the unrealistic bound of AlloX's evaluation: shortest remaining time first, with preemption at no cost (5.1.1).

It is computed without the engine, which cannot stop and move a run without telling its node and waiting for the answer. At any
time the job and the configuration with the shortest remaining time run, then the next ones, as far as there are devices.
Devices of a kind count together, wherever they are, and jobs keep their progress when they change their configuration.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler_service.core.model.values import Micros
from scheduler_service.sim.jobs import SimJob


class Piece(NamedTuple):
    """A job's uninterrupted run in one configuration."""

    job: int
    """The index of the job."""
    configuration: int
    begin_us: Micros
    end_us: Micros


class Bound(NamedTuple):
    ends_us: list[Micros]
    """Completion times by job."""
    pieces: list[Piece]


class Slots(NamedTuple):
    """The slots that one configuration of every job runs on."""

    total: int
    needs: Sequence[int]
    """How many slots each job takes. All jobs have the same kinds of slots in their configurations."""


def srpt(jobs: Sequence[SimJob], slots: Sequence[Slots]) -> Bound:
    """Simulate SRPT. `jobs` are in order of arrival, `slots` by the number of the configuration. Jobs are ordered by the users'
    estimates, reduced in proportion to progress; they run for their true times."""
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
    """Choose the jobs to run now and their configurations: the least remaining times that have room."""
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
