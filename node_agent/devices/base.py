"""What a node has: the one place where the rest of the agent asks about devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Device:
    index: int
    uuid: str
    model: str
    memory_mib: int
    path: tuple[int, ...]
    """Its position at each level of the node's tree, outermost first; each number counts within its parent."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the node offers. `levels` names the levels between the node and its devices, outermost first."""

    cpu_milli: int
    memory_mib: int
    levels: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()


class Provider(Protocol):
    """A kind of devices. Calls with an index that the node does not have raise `UnknownDevice`."""

    @property
    def inventory(self) -> Inventory: ...

    def cpus(self, indices: Sequence[int]) -> frozenset[int] | None:
        """CPUs of the host that a run with these devices is confined to; None means that it is not."""

    def environment(self, indices: Sequence[int]) -> Mapping[str, str]:
        """What a run with these devices needs in its environment to see them and no others."""
