"""What a node has: the one place where the rest of the agent asks about devices."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

FAULT_LENGTH = 256
"""Characters of a fault: the most that the API takes; a longer one would have the whole node refused."""


@dataclass(frozen=True, slots=True)
class Device:
    index: int
    uuid: str
    model: str
    memory_mib: int
    path: tuple[int, ...]
    """Its position at each level of the node's tree, outermost first; each number counts within its parent."""
    numa_node: int | None = None
    """Of the host's memory that is nearest to it; None where that is not known."""
    link_domain: int | None = None
    """Devices with the same number reach each other over NVLink or NVSwitch; None for one that reaches none."""
    fault: str = ""
    """Why nothing should run on it; empty for a healthy one."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the node offers. `levels` names the levels between the node and its devices, outermost first."""

    cpu_milli: int
    memory_mib: int
    levels: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()

    def with_faults(self, faults: Mapping[int, str]) -> "Inventory":
        """As it is with these devices at fault, by their indices; what is not named stays."""
        return replace(self, devices=tuple(replace(d, fault=faults.get(d.index, d.fault)) for d in self.devices))


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of a device. None: it could not be read."""

    index: int
    memory_used_mib: int | None = None
    utilisation_percent: int | None = None
    """How much of the last second some kernel was resident."""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """What a process has reserved on a device. `pid` as the host counts."""

    pid: int
    index: int
    used_mib: int


@dataclass(frozen=True, slots=True)
class DeviceCycle:
    """The wave of memory on a device, as far as it is one process's: of `pid`, the only one there.

    Without a period there is no cycle, or the source hides it; then minimum and maximum are of the time that was looked at.
    """

    pid: int
    index: int
    period_seconds: float | None
    minimum_mib: int
    maximum_mib: int
    confidence: float


class ActivitySource(StrEnum):
    """The measurement that shows how busy a device is."""

    POWER = "power"
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True)
class ActivityPeriod:
    """The period of a device's activity. `pid` is the only process there, so the activity is its."""

    pid: int
    index: int
    period_seconds: float
    confidence: float
    source: ActivitySource


@dataclass(frozen=True, slots=True)
class Observed:
    """One look at all devices of the node, about once a second."""

    devices: tuple[Observation, ...]
    processes: tuple[ProcessMemory, ...] = ()
    cycles: tuple[DeviceCycle, ...] = ()
    activity: tuple[ActivityPeriod, ...] = ()
    """Of devices whose memory shows no cycle."""
    began: float | None = field(default=None, compare=False)
    """When the look began, by the monotonic clock of the machine. None: when it was told."""


class Provider(Protocol):
    """A kind of devices. Calls with an index that the node does not have raise `UnknownDevice`."""

    @property
    def inventory(self) -> Inventory: ...

    def cpus(self, indices: Sequence[int]) -> frozenset[int] | None:
        """CPUs of the host that a run with these devices is confined to; None means that it is not."""

    def environment(self, indices: Sequence[int]) -> Mapping[str, str]:
        """What a run with these devices needs in its environment to see them and no others."""

    def observe(self) -> AsyncIterator[Observed]:
        """Looks at the devices about once a second, for as long as it is iterated. Ends at once where nothing can be seen.

        A device that fails, or a driver that hangs, is told as a fault: this never raises for what the hardware does.
        """
