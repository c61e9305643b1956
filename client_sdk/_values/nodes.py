"""Nodes and devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from client_sdk._values.enums import MemorySource, NodeState
from client_sdk._values.specs import Resources
from client_sdk._values.steps import MiniBatch, RunSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device (GPU) of a node."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    path: tuple[int, ...] = ()
    """Its position at each of the node's `levels`, outermost first."""
    job_ids: tuple[int, ...] = ()
    """The jobs whose runs hold it; several if they share it."""
    fault: str = ""
    """Why nothing is placed on it; empty for a healthy one."""
    numa_node: int | None = None
    """The NUMA node that is nearest to it; None if it is not known."""
    link_domain: int | None = None
    """Devices with the same number reach each other over NVLink or NVSwitch; None if it reaches no other device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceObservation:
    """An agent's reading of a device."""

    index: int
    memory_used_mib: int | None = None
    """None, as with `utilisation_percent`: it could not be read."""
    utilisation_percent: int | None = None
    """The part of the last second in which a kernel was resident. It does not tell how much of the device the kernel used."""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCycle:
    """The rise and fall of a run's use of device memory, once for each mini-batch."""

    job_id: int
    run: int
    task: int = 0
    device: int
    period: timedelta | None = None
    """None while no cycle is seen, since the run has no cycle or the source hides it."""
    minimum_mib: int
    """The minimum (and `maximum_mib` the maximum) over the last periods; without a period, over the time that was observed."""
    maximum_mib: int
    confidence: float = 0.0
    """From 0 to 1: how well one period resembles the next."""
    source: MemorySource = MemorySource.NVML


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """An agent's last readings of its node's devices and runs."""

    time: datetime | None
    devices: tuple[DeviceObservation, ...] = ()
    """All devices of the node; none if they are simulated."""
    cycles: tuple[MemoryCycle, ...] = ()
    steps: tuple[RunSteps, ...] = ()
    """The runs that count their steps."""
    mini_batches: tuple[MiniBatch, ...] = ()
    """The mini-batch times of the runs for which a source knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDrain:
    """Why nothing new is placed on a node."""

    reason: str
    user: str
    """The user who drained the node; empty if Ebb did."""
    time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with an agent."""

    name: str
    state: NodeState
    capacity: Resources
    free: Resources
    """Resources that are neither held by a run nor earmarked."""
    earmarked: Resources
    """Resources kept for trials whose victims are stopping."""
    levels: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    address: str = ""
    agent_version: str = ""
    state_time: datetime | None = None
    """The time at which it entered this state."""
    drain: NodeDrain | None = None
    """Set while nothing new is placed on it."""
    strikes: int = 0
    """The number of failures attributed to this node. Those that are no fault of its own count once for each user. At the
    site's limit it is drained."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Labels by which jobs can select it; they are set in its agent's configuration."""
    observations: Observations | None = None
    """Its agent's last readings. Set by `Client.node` only. None without readings: it is silent, a standby answers, or its
    devices are simulated and no run counts its steps."""
