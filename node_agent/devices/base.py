"""The devices of a node: the one place where the rest of the agent asks about them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

FAULT_LENGTH = 256
"""Characters of a fault: the most that the API takes; with a longer one, the whole node would be refused."""


@dataclass(frozen=True, slots=True)
class Device:
    index: int
    uuid: str
    model: str
    memory_mib: int
    path: tuple[int, ...]
    """The position at each level of the node's tree, outermost first; each number counts within its parent."""
    numa_node: int | None = None
    """The NUMA node nearest to the device; None if it is not known."""
    link_domain: int | None = None
    """Devices with the same number reach each other over NVLink or NVSwitch; None for a device that reaches no other."""
    fault: str = ""
    """Why nothing should run on the device; empty for a healthy one."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The resources that the node offers. `levels` names the levels between the node and its devices, outermost first."""

    cpu_milli: int
    memory_mib: int
    levels: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()

    def with_faults(self, faults: Mapping[int, str]) -> "Inventory":
        """Return a copy with these faults, by device index; other devices keep theirs."""
        return replace(self, devices=tuple(replace(d, fault=faults.get(d.index, d.fault)) for d in self.devices))


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed state of a device. None: it could not be read."""

    index: int
    memory_used_mib: int | None = None
    utilisation_percent: int | None = None
    """Part of the last second in which some kernel was resident."""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory that a process has reserved on a device. `pid` as the host counts."""

    pid: int
    index: int
    used_mib: int


@dataclass(frozen=True, slots=True)
class DeviceCycle:
    """The memory wave on a device while `pid` is the only process there.

    Without a period, there is no cycle or the source hides it; minimum and maximum are then of the whole time looked at.
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
    """Activity of devices whose memory shows no cycle."""
    began: float | None = field(default=None, compare=False)
    """When the look began, by the machine's monotonic clock. None: when it was reported."""


class Provider(Protocol):
    """A kind of devices. Calls with an index that the node does not have raise `UnknownDevice`."""

    @property
    def inventory(self) -> Inventory: ...

    def cpus(self, indices: Sequence[int]) -> frozenset[int] | None:
        """Return the host CPUs to which a run with these devices is confined; None: not confined."""

    def environment(self, indices: Sequence[int]) -> Mapping[str, str]:
        """Return the environment variables with which a run sees these devices and no others."""

    def observe(self) -> AsyncIterator[Observed]:
        """Look at the devices about once a second, for as long as it is iterated. Ends immediately if nothing can be seen.

        A device that fails, or a driver that hangs, is reported as a fault: this never raises for what the hardware does.
        """
