"""Nodes and devices."""

from dataclasses import dataclass
from datetime import datetime

from client_sdk._specs import Resources
from client_sdk._states import NodeState


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
