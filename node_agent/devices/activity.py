"""The load of a device as a wave, for programs whose memory shows no cycle because a caching allocator hides it.

The driver updates these numbers at even intervals, about ten times a second. So a period below half a second is not reported,
and a longer period may be the alias of a shorter one: mini-batches of 0.11 s look exactly like mini-batches of 1.1 s, however
the agent samples these measurements. The energy counter is a sum over time, and a sum levels a short wave. So a true period is
as strong in the energy as in the power, and an alias is not. The clock uses this source last (ADR 44).
"""

from cmath import exp, pi
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple, Protocol

from node_agent.devices import nvml
from node_agent.devices.base import ActivitySource
from node_agent.devices.memory_cycles import Wave

SHORTEST = 0.5
"""Seconds of the shortest period that is reported."""
IN_ENERGY = 0.6
"""Least strength of a period in the energy, relative to its strength in the power. In simulated samples, aliases have 0.33
at most, and true periods 0.9 at least."""
_WINDOW = 60.0
_MOST = 6000
"""Samples that are kept: the whole window, if at most a hundred come each second."""


class Sample(NamedTuple):
    seconds: float
    watts: float
    joules: float
    """Energy since the driver was loaded."""


def share_in_energy(samples: Iterable[Sample], period_seconds: float) -> float:
    """Return the strength of the period in the energy, relative to that in the power: about 1 for a true period.

    Both strengths are the first Fourier coefficient at that period. 0 if no power was measured.
    """
    in_power = in_energy = 0j
    for earlier, later in pairwise(samples):
        turn = exp(-2j * pi * (earlier.seconds + later.seconds) / 2 / period_seconds)
        in_power += turn * (earlier.watts + later.watts) / 2 * (later.seconds - earlier.seconds)
        in_energy += turn * (later.joules - earlier.joules)
    return abs(in_energy) / abs(in_power) if in_power else 0.0


class Period(NamedTuple):
    seconds: float
    confidence: float
    """From 0 to 1: how well one period resembles the next."""


class Activity(Protocol):
    """The wave of one device, and its period at the last look."""

    source: ActivitySource
    period: Period | None

    def sample(self, now: float) -> None:
        """Add a sample. Raises `nvml.Failed`."""

    def find_period(self) -> None:
        """Look for the period again. Costs some milliseconds."""


class PowerActivity:
    source = ActivitySource.POWER

    def __init__(self, power: nvml.Power) -> None:
        self.period: Period | None = None
        self._power = power
        self._wave = Wave(_WINDOW)
        self._samples: deque[Sample] = deque(maxlen=_MOST)

    def sample(self, now: float) -> None:
        sample = Sample(now, self._power.watts(), self._power.joules())
        self._wave.add(now, int(sample.watts))
        self._samples.append(sample)
        while self._samples[0].seconds < now - _WINDOW:
            self._samples.popleft()

    def find_period(self) -> None:
        found = _period(self._wave)
        alias = found is not None and share_in_energy(self._samples, found.seconds) < IN_ENERGY
        self.period = None if alias else found


class UtilisationActivity:
    """The utilization of a device. The driver reports the mean of its sampling interval, which levels a shorter wave."""

    source = ActivitySource.UTILISATION

    def __init__(self, device: nvml.Handle) -> None:
        self.period: Period | None = None
        self._device = device
        self._wave = Wave(_WINDOW)

    def sample(self, now: float) -> None:
        self._wave.add(now, nvml.utilisation(self._device))

    def find_period(self) -> None:
        self.period = _period(self._wave)


def open_activity(device: nvml.Handle, now: float) -> Activity | None:
    """Open power, or utilization if the driver does not report power and energy; None if it reports neither."""
    try:
        by_power = PowerActivity(nvml.Power(device))
        by_power.sample(now)
        return by_power
    except nvml.Failed:
        by_utilisation = UtilisationActivity(device)
    try:
        by_utilisation.sample(now)
    except nvml.Failed:
        return None
    return by_utilisation


def _period(wave: Wave) -> Period | None:
    cycle = wave.cycle()
    if cycle is None or cycle.period_seconds is None or cycle.period_seconds < SHORTEST:
        return None
    return Period(cycle.period_seconds, cycle.confidence)
