"""The hardware of a node, as its agent reports it."""

from dataclasses import dataclass

from scheduler_service.core.model.values import Vector


@dataclass(frozen=True, slots=True)
class Device:
    """A device and its place in the node's tree.

    `path` holds one number for each of the node's levels, outermost first: GPU 5 of a node with two sockets of two
    switches of two GPUs has the path (1, 0) under the levels ("socket", "switch").
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    path: tuple[int, ...] = ()
    numa_node: int | None = None
    link_domain: int | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """A node's capacity and device tree."""

    capacity: Vector
    levels: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
