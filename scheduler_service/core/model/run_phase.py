"""Phases of a run: one table gives each phase its predicates, another the phases that may follow it.

Code tests a predicate and never compares phases, so a new phase is one more line here.
"""

from enum import IntEnum
from types import MappingProxyType


class RunPhase(IntEnum):
    """The phase of a run as the scheduler knows it. Agents have phases of their own (ebb.agent.v1.RunPhase)."""

    to_launch: bool
    """The agent has been told nothing yet, or has not prepared it yet."""
    counts_for_gang: bool
    """It is prepared, and waits until all tasks of its gang are."""
    preemptible: bool
    """It may be told to stop so that others start."""
    exits_soon: bool
    """It was told to stop: what it holds comes free within its grace period."""
    holds_devices: bool
    holds_host: bool
    """It holds CPUs and memory of its node."""
    awaits_source: bool
    """It is not part of its job's launch yet: it begins when the run before it has ended at another node."""
    over: bool
    """It no longer holds anything."""

    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    ENDED = 4
    READY = 5
    PARKING = 6
    PARKED = 7
    RESUMING = 8
    WARMING = 9


for _phase, _predicates in {
    #                   to_launch, counts_for_gang, preemptible, exits_soon, holds_devices, holds_host
    RunPhase.STARTING: (True, False, True, False, True, True),
    RunPhase.READY: (False, True, True, False, True, True),
    RunPhase.RUNNING: (False, False, True, False, True, True),
    RunPhase.PARKING: (False, False, False, False, True, True),
    RunPhase.PARKED: (False, False, False, False, False, True),
    RunPhase.RESUMING: (False, False, False, False, True, True),
    RunPhase.WARMING: (False, False, False, False, True, True),
    RunPhase.STOPPING: (False, False, False, True, True, True),
    RunPhase.ENDED: (False, False, False, False, False, False),
}.items():
    _phase.to_launch, _phase.counts_for_gang, _phase.preemptible = _predicates[:3]
    _phase.exits_soon, _phase.holds_devices, _phase.holds_host = _predicates[3:]
    _phase.awaits_source = _phase is RunPhase.WARMING
    _phase.over = not any(_predicates)

NEXT = MappingProxyType(
    {
        RunPhase.STARTING: frozenset({RunPhase.READY, RunPhase.RUNNING, RunPhase.STOPPING, RunPhase.ENDED}),
        RunPhase.READY: frozenset({RunPhase.RUNNING, RunPhase.STOPPING, RunPhase.ENDED}),
        RunPhase.RUNNING: frozenset({RunPhase.PARKING, RunPhase.STOPPING, RunPhase.ENDED}),
        RunPhase.PARKING: frozenset({RunPhase.RUNNING, RunPhase.PARKED, RunPhase.STOPPING, RunPhase.ENDED}),
        RunPhase.PARKED: frozenset({RunPhase.RESUMING, RunPhase.STOPPING, RunPhase.ENDED}),
        RunPhase.RESUMING: frozenset({RunPhase.RUNNING, RunPhase.STOPPING, RunPhase.ENDED}),
        RunPhase.WARMING: frozenset({RunPhase.STARTING, RunPhase.READY, RunPhase.ENDED}),
        RunPhase.STOPPING: frozenset({RunPhase.ENDED, RunPhase.PARKED}),  # a parked run that cannot save stays parked
        RunPhase.ENDED: frozenset[RunPhase](),
    }
)
"""The phases that may follow each phase. Staying in a phase is not a transition."""
