"""The effects of sharing in a simulation: levels over time, and sums."""

from array import array
from dataclasses import dataclass, field

from scheduler_service.core.model.values import Micros
from scheduler_service.sim.nodes import Party
from scheduler_service.sim.sharing.kinds import UNKNOWN
from scheduler_service.sim.sharing.model import BILLION

MINI_BATCHES = 100
"""The number of mini-batches after which a user has early feedback (Gandiva, section 6.3)."""


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
    """The usage of all devices and jobs. Levels of jobs count each job once for each of its devices."""

    utilised: Level = field(default_factory=Level)
    """The utilization of all devices together, in millionths of a device."""
    working: Level = field(default_factory=Level)
    """The rates of all jobs, in billionths of those alone."""
    lost: Level = field(default_factory=Level)
    """The devices on which runs are parked and resumed, in billionths."""
    packed: Level = field(default_factory=Level)
    """How many jobs are packed with others."""
    groups: int = 0
    """The number of share groups that existed."""
    switches: int = 0
    """Changes from one row of a share group to the next."""
    parks: int = 0
    """How often a run was parked at the end of a turn."""
    packings: int = 0
    """How often a job was packed that had not been packed before."""
    unpackings: int = 0
    """How often a share plan separated a job from those with which it was packed."""
    early_us: dict[int, Micros] = field(default_factory=dict)
    """The time from each job's submit until it had done MINI_BATCHES of its mini-batches."""

    def level(self, party: Party, at: Micros, rate: int, lost: int) -> None:
        """Set the contribution of a launch to the levels from now on, but not before the time of its last change."""
        devices = 0 if party.site is None else party.site.devices
        used = 0 if party.kind is None or party.kind.utilisation == UNKNOWN else party.kind.utilisation * rate // BILLION
        now = (used * devices, rate * devices, lost * devices)
        before, at = party.levels, max(at, party.levels_us)
        if now == before:
            return
        for level, old, new in zip((self.utilised, self.working, self.lost), before, now, strict=True):
            level.add(at, new - old)
        party.levels, party.levels_us = now, at

    def notes_packed(self, party: Party, at: Micros, packed: bool, planned: bool) -> None:
        """Record whether a job is packed. `planned`: by a share plan, and not because others came or exited."""
        if packed is not party.packed:
            party.packed = packed
            self.packed.add(at, 1 if packed else -1)
            self.packings += packed
            self.unpackings += planned and not packed
