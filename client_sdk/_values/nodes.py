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
    """The jobs whose runs hold it; several when they share it."""
    fault: str = ""
    """Why nothing is placed on it; empty for a healthy one."""
    numa_node: int | None = None
    """Of the host's memory that is nearest to it; None where that is not known."""
    link_domain: int | None = None
    """Devices with the same number reach each other over NVLink or NVSwitch; None for one that reaches none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceObservation:
    """What a node's agent saw of a device."""

    index: int
    memory_used_mib: int | None = None
    """None, as with `utilisation_percent`: it could not be read."""
    utilisation_percent: int | None = None
    """How much of the last second some kernel was resident. It says nothing of how much of the device that used."""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCycle:
    """The rise and fall of a run's use of device memory, once for each mini-batch."""

    job_id: int
    run: int
    task: int = 0
    device: int
    period: timedelta | None = None
    """None while no cycle is seen: there is none, or the source hides it."""
    minimum_mib: int
    """Within the last periods, as is `maximum_mib`; without a period, within the time that was looked at."""
    maximum_mib: int
    confidence: float = 0.0
    """From 0 to 1: how well one period resembles the next."""
    source: MemorySource = MemorySource.NVML


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What a node's agent saw last of its devices, and of the runs there."""

    time: datetime | None
    devices: tuple[DeviceObservation, ...] = ()
    """All devices of the node; none if they are simulated."""
    cycles: tuple[MemoryCycle, ...] = ()
    steps: tuple[RunSteps, ...] = ()
    """The runs that count their steps."""
    mini_batches: tuple[MiniBatch, ...] = ()
    """The runs of which a source knows the mini-batch time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDrain:
    """Why nothing new is placed on a node."""

    reason: str
    user: str
    """Who asked for it; empty where Ebb did."""
    time: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with an agent."""

    name: str
    state: NodeState
    capacity: Resources
    free: Resources
    """Neither held by a run nor earmarked."""
    earmarked: Resources
    """Kept for trials whose victims are leaving."""
    levels: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    address: str = ""
    agent_version: str = ""
    state_time: datetime | None = None
    """Since when it has been in this state."""
    drain: NodeDrain | None = None
    """Set while nothing new is placed on it."""
    strikes: int = 0
    """Failures that are this node's fault, as far as can be told. At the site's limit it is drained."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    """By which jobs may ask for it; its agent's configuration has them."""
    observations: Observations | None = None
    """In what `Client.node` returns: what its agent saw last. None where nothing is known: it is silent, a standby answers, or
    its devices are simulated and no run counts its steps."""
