"""What came of sharing in a simulation: levels over time, and sums."""

from array import array
from dataclasses import dataclass, field

from scheduler_service.core.model.values import Micros

MINI_BATCHES = 100
"""After so many a user has early feedback (Gandiva, section 6.3)."""


@dataclass(slots=True)
class Level:
    """A level that changes by `deltas` at `times`."""

    times: "array[int]" = field(default_factory=lambda: array("q"))
    deltas: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, at: Micros, delta: int) -> None:
        if delta:
            self.times.append(at)
            self.deltas.append(delta)


@dataclass(slots=True)
class Usage:
    """Of all devices and jobs. Device time is in device-microseconds and billionths."""

    utilised: Level = field(default_factory=Level)
    """The utilisation of all devices together, in millionths of a device."""
    rate: Level = field(default_factory=Level)
    """The rates of all jobs together, each times its devices, in billionths of the rate alone."""
    packed: Level = field(default_factory=Level)
    """How many jobs are packed with another one."""
    switches: int = 0
    """Changes from one row of a share group to the next."""
    parks: int = 0
    """Of a job, at the end of a slice."""
    switching: int = 0
    """Device time that was lost while runs were parked and resumed."""
    packings: int = 0
    """How often jobs were packed that had been apart, or had not run."""
    unpackings: int = 0
    """How often packed jobs were separated while all of them ran."""
    early_us: dict[int, Micros] = field(default_factory=dict)
    """By job: from its submit until it had done MINI_BATCHES of its mini-batches."""
