"""What is to be decided, as numbers: which of the queued jobs start now, and in which configuration (Algorithm 2).

A question holds all that the answer depends on, so that a long one can be answered by another process.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model.values import Micros
from scheduler_service.policies.allox.progress import considered
from scheduler_service.policies.matching.problem import Ints, Problem
from scheduler_service.policies.matching.solve import solve


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
    """Whose each job is, by number; the numbers are in the order of the users' names."""
    received: tuple[float, ...]
    """The progress of each user who has queued or running jobs."""
    arrived: Ints
    times: Ints
    """How long a job runs on a slot, at least 1; NEVER where it cannot run."""
    configurations: Ints
    """In which configuration it would run there."""
    values: NDArray[np.float64]
    """What the user's progress gains by it."""
    free_at: tuple[Ints, ...]
    """By kind: when each slot is free; those that are free now, `now`."""

    def __call__(self) -> tuple[int, ...]:
        """The jobs that start now, in this order: the id and the configuration of each in turn."""
        return tuple(number for start in _starts(self) for number in start)


def _starts(of: Question) -> Iterator[tuple[int, int]]:
    free_at = [slots.copy() for slots in of.free_at]
    received = list(of.received)
    for level in np.unique(of.levels).tolist():
        rows = np.flatnonzero(of.levels == level)
        while len(rows):
            users = sorted(set(of.users[rows].tolist()), key=lambda user: (received[user], user))
            started = _first_starts(of, rows, users, free_at)
            for row, kind, slot in started:
                free_at[kind][slot] = of.now + of.times[row, kind]
                received[of.users[row]] += float(of.values[row, kind])
                yield int(of.jobs[row]), int(of.configurations[row, kind])
            if not started:
                break
            rows = np.setdiff1d(rows, [row for row, _, _ in started])
        if len(rows):  # jobs of other levels get the slots after these
            free_at = _after(of, rows, free_at)


def _first_starts(of: Question, rows: Ints, users: list[int], free_at: list[Ints]) -> list[tuple[int, int, int]]:
    """Rows, kinds and slots of jobs that start now, as the matching of the jobs of the users with the lowest progress has them.
    Only one of them, that of the user with the lowest progress, unless all users are considered. More users are considered for
    as long as nothing starts, so that slots are not idle for want of users (section 4.4)."""
    count = considered(len(users), of.alpha)
    while True:
        among = rows[np.isin(of.users[rows], users[:count])]
        matching = solve(Problem(of.times[among], tuple(free_at), of.arrived[among]))
        at = np.flatnonzero(matching.first & (matching.start <= of.now))
        found = [(int(among[i]), int(matching.kind[i]), int(matching.slot[i])) for i in at.tolist()]
        turn = {user: place for place, user in enumerate(users)}
        found.sort(key=lambda start: (turn[int(of.users[start[0]])], of.arrived[start[0]], of.jobs[start[0]]))
        if found or count == len(users):
            return found if count == len(users) else found[:1]
        count = min(2 * count, len(users))


def _after(of: Question, rows: Ints, free_at: list[Ints]) -> list[Ints]:
    """When slots are free after these jobs, as a matching of all of them has it."""
    matching = solve(Problem(of.times[rows], tuple(free_at), of.arrived[rows]))
    after = [slots.copy() for slots in free_at]
    placed = np.flatnonzero(matching.kind >= 0)
    for kind, slots in enumerate(after):
        here = placed[matching.kind[placed] == kind]
        np.maximum.at(slots, matching.slot[here], matching.start[here] + of.times[rows[here], kind])
    return after
