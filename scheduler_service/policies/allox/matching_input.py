"""A matching's input, as numbers, and its answer: which queued jobs start now, in which configuration (Algorithm 2).

A question holds all that the answer depends on, so that a long one can be answered by another process.

Among it is users' progress (section 3.3.2): what each receives now; and how many users are considered (Algorithm 2, line 2).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import Job, JobSpec
from scheduler_service.core.model.values import Micros
from scheduler_service.policies.allox.configuration_times import Known
from scheduler_service.policies.allox.matching.problem import NEVER, Ints, Problem
from scheduler_service.policies.allox.matching.solve import solve


class Start(NamedTuple):
    """A job that starts now."""

    job: int
    configuration: int
    waits: Mapping[int, Micros] = MappingProxyType({})
    """For each configuration of a job that has several: how long it would have waited for the first slot."""
    where: str = ""
    """In which part of the scope (`scope.Slots.place_of_kind`)."""


def encode_starts(starts: Iterable[Start]) -> tuple[int | str, ...]:
    """Encode starts for a memo and the event `PlanReady`: two numbers for each, and a text if there is more to say.

    >>> encode_starts([Start(7, 0), Start(8, 1, {0: 2000, 1: 0}, "k80")])
    (7, 0, 8, 1, '0:2000,1:0 k80')
    """
    found: list[int | str] = []
    for job, configuration, waits, where in starts:
        found += [job, configuration]
        if waits or where:
            found.append(f"{','.join(f'{number}:{wait}' for number, wait in waits.items())} {where}")
    return tuple(found)


def decode_starts(plan: Iterable[int | str]) -> list[Start]:
    """
    >>> decode_starts([7, 0, 8, 1, "0:2000,1:0 k80"])[1] == Start(8, 1, {0: 2000, 1: 0}, "k80")
    True
    """
    found: list[Start] = []
    job: int | None = None
    for part in plan:
        if isinstance(part, str):
            waits, _, where = part.partition(" ")
            pairs = (pair.split(":") for pair in waits.split(",") if pair)
            found[-1] = found[-1]._replace(waits={int(number): int(wait) for number, wait in pairs}, where=where)
        elif job is None:
            job = part
        else:
            found.append(Start(job, part))
            job = None
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Queued jobs, in the order of their levels. Each table is jobs x kinds of slots."""

    now: Micros
    alpha: float
    jobs: Ints
    """Ids."""
    levels: Ints
    """Jobs of a lower level are matched before those of a higher one."""
    users: Ints
    """The user of each job, as a number. Of users with equal progress the one with the lower number is served first: users with
    queued jobs are numbered in a random order."""
    received: tuple[float, ...]
    """The progress of each user who has queued or running jobs."""
    arrived: Ints
    times: Ints
    """How long a job runs on a slot, at least 1; NEVER where it cannot run."""
    configurations: Ints
    """In which configuration it would run there."""
    values: NDArray[np.float64]
    """How much the user's progress would gain by it."""
    free_at: tuple[Ints, ...]
    """For each kind, when each slot is free; `now` for those that are free now."""
    where: tuple[str, ...]
    """For each kind, the part of the scope in which its slots are."""

    def __call__(self) -> tuple[int | str, ...]:
        """The jobs that start now, in this order (`encode_starts`)."""
        return encode_starts(_starts(self))


def _starts(of: Question) -> Iterator[Start]:
    free_at = [slots.copy() for slots in of.free_at]
    received = list(of.received)
    for level in np.unique(of.levels).tolist():
        rows = np.flatnonzero(of.levels == level)
        while len(rows):
            users = sorted(set(of.users[rows].tolist()), key=lambda user: (received[user], user))
            started = _first_starts(of, rows, users, free_at)
            for row, kind, slot in started:
                waits = _waits(of, row, free_at)
                free_at[kind][slot] = of.now + of.times[row, kind]
                received[of.users[row]] += float(of.values[row, kind])
                yield Start(int(of.jobs[row]), int(of.configurations[row, kind]), waits, of.where[kind])
            if not started:
                break
            rows = np.setdiff1d(rows, [row for row, _, _ in started])
        if len(rows):  # jobs of other levels get the slots after these
            free_at = _free_after(of, rows, free_at)


def _waits(of: Question, row: int, free_at: list[Ints]) -> dict[int, Micros]:
    """See `Start.waits`. Of several configurations on slots of one kind only the fastest is compared."""
    found: dict[int, Micros] = {}
    for kind in np.flatnonzero(of.times[row] != NEVER).tolist():
        if len(free_at[kind]):
            number, wait = int(of.configurations[row, kind]), int(free_at[kind].min()) - of.now
            found[number] = min(wait, found.get(number, wait))
    return dict(sorted(found.items())) if len(found) > 1 else {}


def _first_starts(of: Question, rows: Ints, users: list[int], free_at: list[Ints]) -> list[tuple[int, int, int]]:
    """Rows, kinds and slots of jobs that start now, as the matching of the jobs of the users with the lowest progress has them.
    Only one of them, that of the user with the lowest progress, unless all users are considered. More users are considered for
    as long as nothing starts, so that slots are not idle for lack of users (section 4.4)."""
    count = count_considered(len(users), of.alpha)
    while True:
        among = rows[np.isin(of.users[rows], users[:count])]
        matching = solve(Problem(of.times[among], tuple(free_at), of.arrived[among]))
        at = np.flatnonzero(matching.first & (matching.start <= of.now))
        found = [(int(among[i]), int(matching.kind[i]), int(matching.slot[i])) for i in at.tolist()]
        turn = {user: place for place, user in enumerate(users)}
        found.sort(key=lambda start: (turn[int(of.users[start[0]])], of.times[start[0], start[1]], of.jobs[start[0]]))
        if found or count == len(users):
            return found if count == len(users) else found[:1]
        count = min(2 * count, len(users))


def _free_after(of: Question, rows: Ints, free_at: list[Ints]) -> list[Ints]:
    """When slots are free after these jobs, as a matching of all of them has it."""
    matching = solve(Problem(of.times[rows], tuple(free_at), of.arrived[rows]))
    after = [slots.copy() for slots in free_at]
    placed = np.flatnonzero(matching.kind >= 0)
    for kind, slots in enumerate(after):
        here = placed[matching.kind[placed] == kind]
        np.maximum.at(slots, matching.slot[here], matching.start[here] + of.times[rows[here], kind])
    return after


def progress(holders: Iterable[tuple[Job, int]], known: Known, share: Callable[[JobSpec], float]) -> dict[str, float]:
    """The progress of each user: the sum of the values of the jobs that hold resources, each in a configuration. Users with
    none are left out. The value of a job is the dominant share of its fastest configuration, less in one that takes longer:
    times the time in the fastest over the time in this one."""
    found: defaultdict[str, float] = defaultdict(float)
    share_of_need = cache(lambda need: share(known.specs[need]))
    for job, configuration in holders:
        of = known.ways_of(job)
        found[job.user] += of.discount(configuration) * share_of_need(of.needs[of.fastest])
    return found


def count_considered(users: int, alpha: float) -> int:
    """How many users of lowest progress are considered: ceil(alpha n), and one for alpha = 0."""
    return min(max(ceil(alpha * users), 1), users)
