"""How busy a device is over time, for programs whose memory shows no cycle: a caching allocator hides it.

The driver brings these numbers up to date at even times, about ten times a second. A period below half a second cannot be told
from that, and a mini-batch of less may look like a longer one. So this is the last source that is asked (ADR 44).
"""

from collections.abc import Callable
from typing import NamedTuple

from node_agent.devices import nvml
from node_agent.devices.base import ActivitySource
from node_agent.jobs.memory_cycles import Wave

SHORTEST = 0.5
"""Seconds of the shortest period that is told."""


class Period(NamedTuple):
    seconds: float
    confidence: float
    """From 0 to 1: how well one period resembles the next."""


class Activity:
    """The wave of one number of one device, and the period that it had when it was looked at last."""

    def __init__(self, source: ActivitySource, read: Callable[[], int]) -> None:
        self.source = source
        self.period: Period | None = None
        self._read = read
        self._wave = Wave()

    def sample(self, now: float) -> None:
        """Raises `nvml.Failed`."""
        self._wave.add(now, self._read())

    def look(self) -> None:
        """Costs some milliseconds."""
        cycle = self._wave.cycle()
        self.period = None
        if cycle is not None and cycle.period_seconds is not None and cycle.period_seconds >= SHORTEST:
            self.period = Period(cycle.period_seconds, cycle.confidence)


def open_activity(device: nvml.Handle) -> Activity | None:
    """By power, or by utilisation where the driver does not tell the power; None where it tells neither."""
    power = nvml.or_none(lambda: nvml.Power(device))
    reads: tuple[tuple[ActivitySource, Callable[[], int]], ...] = (
        *(((ActivitySource.POWER, power.watts),) if power is not None else ()),
        (ActivitySource.UTILISATION, lambda: nvml.utilisation(device)),
    )
    for source, read in reads:
        if nvml.or_none(read) is not None:
            return Activity(source, read)
    return None
