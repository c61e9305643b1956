"""Which row of a share group executes now, and what that asks of its members. Pure: no clock but what is passed in.

The phase of a cycle is the wall clock modulo the period. So the agents of all nodes of a group switch together without talking
to each other, and an agent that restarts goes on in the middle of a turn.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from node_agent.jobs.run_key import RunKey

_LEAST = 0.1
"""The part of its share that a row keeps, however long switching takes."""


class Turn(NamedTuple):
    row: int
    """Its place among the rows."""
    begins: float
    ends: float
    """Wall-clock times, in seconds."""


class Member(NamedTuple):
    """A run of a share group on this node that is not over."""

    key: RunKey
    devices: frozenset[int]
    executes: bool
    """It has a process that is not parked, or is going to have one."""


class Moves(NamedTuple):
    park: frozenset[RunKey]
    go: frozenset[RunKey]
    """To resume, or to start."""


def with_turns(weights: Mapping[int, int]) -> dict[int, int]:
    """Of these rows, by their places, those that have a turn. Rows of weight 0 have one only if there are no others."""
    return {place: weight for place, weight in weights.items() if weight} or dict.fromkeys(weights, 1)


def durations(weights: Sequence[int], period: float, losses: Sequence[float] = ()) -> list[float]:
    """The seconds of each row's turn. `losses`: the seconds that each row loses in its turn until it executes, less those that
    it gains afterwards until it is parked. Without losses, turns are proportional to weights; with them, what is left is."""
    losses = losses or (0.0,) * len(weights)
    each = (period - sum(losses)) / sum(weights)
    found = [
        max(_LEAST * weight * period / sum(weights), loss + weight * each) for weight, loss in zip(weights, losses, strict=True)
    ]
    return [seconds * period / sum(found) for seconds in found]


def at(wall: float, weights: Mapping[int, int], period: float, losses: Sequence[float] = ()) -> Turn:
    """The turn at a time. `weights` has the weights of the rows that take turns, by their places."""
    cycle = wall // period
    begins = cycle * period
    rows = list(weights)
    for row, seconds in zip(rows, durations(list(weights.values()), period, losses), strict=True):
        if wall < begins + seconds:
            return Turn(row, begins, begins + seconds)
        begins += seconds
    return Turn(rows[-1], begins - seconds, (cycle + 1) * period)


def moves(active: Collection[RunKey], members: Collection[Member]) -> Moves:
    """What is to be done so that the runs of the active row execute, and no others. A run goes on as soon as no run of another
    row executes on one of its devices: memory that is not free yet cannot be taken."""
    others = [member for member in members if member.key not in active and member.executes]
    taken = frozenset().union(*(member.devices for member in others))
    go = (member for member in members if member.key in active and not member.executes and not member.devices & taken)
    return Moves(frozenset(member.key for member in others), frozenset(member.key for member in go))
