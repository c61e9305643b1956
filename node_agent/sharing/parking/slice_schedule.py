"""Decides which row of a share group executes now, and what its members have to do. Pure: the clock is passed in.

The phase of a cycle is the wall clock modulo the period. So the agents of all nodes of a group switch together without talking
to each other, and an agent that restarts resumes in the middle of a turn.
"""

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple

from node_agent.run_state.run_key import RunKey

RENEWED = 30.0
"""Seconds after which a turn without an end gets another name."""
_LEAST = 0.1
"""The part of its share that a row keeps, however long switching takes."""


class Turn(NamedTuple):
    row: int
    """Its position among the rows."""
    begins: float
    ends: float
    """Wall-clock times, in seconds."""
    name: tuple[int, ...] = ()
    """Name of this turn within its plan: the same on all nodes of the group."""

    @property
    def renewed_at(self) -> float:
        """When it gets another name, or ends: members that could not be parked are then asked again."""
        return self.begins + RENEWED if self.name and self.ends == inf else self.ends


class Member(NamedTuple):
    """A run of a share group on this node that has not ended."""

    key: RunKey
    devices: frozenset[int]
    executes: bool
    """It has a process that is not parked, or is going to have one."""


class Moves(NamedTuple):
    park: frozenset[RunKey]
    go: frozenset[RunKey]
    """Runs to resume or to start."""


def with_turns(weights: Mapping[int, int]) -> dict[int, int]:
    """Return the rows, by position, that have a turn. Rows of weight 0 have one only if there are no others."""
    return {place: weight for place, weight in weights.items() if weight} or dict.fromkeys(weights, 1)


def durations(weights: Sequence[int], period: float, losses: Sequence[float] = ()) -> list[float]:
    """Return the seconds of each row's turn. `losses`: the seconds that each row loses in its turn until it executes, less
    those that it gains afterwards until it is parked. Turns without their losses are proportional to weights."""
    losses = losses or (0.0,) * len(weights)
    each = (period - sum(losses)) / sum(weights)
    found = [
        max(_LEAST * weight * period / sum(weights), loss + weight * each) for weight, loss in zip(weights, losses, strict=True)
    ]
    return [seconds * period / sum(found) for seconds in found]


def turn_at(wall: float, weights: Mapping[int, int], period: float, losses: Sequence[float] = ()) -> Turn:
    """Return the turn at a time. `weights` has the weights of the rows that take turns, by position."""
    cycle = int(wall // period)
    begins, over = cycle * period, (cycle + 1) * period
    rows = list(weights)
    for row, seconds in zip(rows[:-1], durations(list(weights.values()), period, losses), strict=False):
        if wall < begins + seconds:
            return Turn(row, begins, begins + seconds, (cycle, row))
        begins += seconds
    return Turn(rows[-1], begins, over, (cycle, rows[-1]))  # it gets what rounding has lost


def lasting_turn(row: int, wall: float, *cause: int) -> Turn:
    """Return a turn without an end. All nodes of a group rename it at the same time, so that together they ask again for the
    park of a gang that some of them could not park. `cause`: why this row has it, if not by the plan."""
    window = int(wall // RENEWED)
    return Turn(row, window * RENEWED, inf, (-1, window, row, *cause))


def moves(active: Collection[RunKey], members: Collection[Member]) -> Moves:
    """Return what to do so that only the runs of the active row execute. A run starts or resumes as soon as no run of another
    row executes on one of its devices: memory that is not free yet cannot be taken."""
    others = [member for member in members if member.key not in active and member.executes]
    taken = frozenset().union(*(member.devices for member in others))
    go = (member for member in members if member.key in active and not member.executes and not member.devices & taken)
    return Moves(frozenset(member.key for member in others), frozenset(member.key for member in go))
