"""Types and functions shared by the reading, its tree and the inventory. Nothing here needs networkx."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from node_agent.devices.reading import Gpu, MigInstance, Reading

_PCI = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


@dataclass(frozen=True, slots=True)
class Tree:
    """The topology of a machine's devices."""

    levels: tuple[str, ...] = ()
    """Levels between the node and its devices, outermost first. All cells of a level hold the same number of like devices."""
    paths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """One number per level for each UUID, counted within its parent; in the order of the devices' indices."""
    link_domains: Mapping[str, int] = field(default_factory=dict)
    """NVLink domains, by UUID, of devices that reach another one over NVLink or NVSwitch."""
    notes: tuple[str, ...] = ()
    """Notes on what was collapsed, guessed or contradicted, and why."""
    link_notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A GPU or a MIG instance that becomes a device."""

    gpu: Gpu
    instance: MigInstance | None = None

    @property
    def uuid(self) -> str:
        return self.instance.uuid if self.instance else self.gpu.uuid

    @property
    def model(self) -> str:
        return self.instance.name if self.instance else self.gpu.name

    @property
    def memory_mib(self) -> int:
        return self.instance.memory_mib if self.instance else self.gpu.memory_mib


def leaves(reading: Reading) -> tuple[Leaf, ...]:
    """Return them in the order of their indices, however the driver lists them: GPUs by PCI address, MIG instances by size."""
    found: list[Leaf] = []
    for gpu in sort_gpus(reading.gpus):
        if gpu.mig is None:
            found.append(Leaf(gpu))
        else:
            instances = sorted(gpu.mig, key=lambda one: (-one.memory_mib, one.name, one.uuid))
            found += [Leaf(gpu, instance) for instance in instances]
    return tuple(found)


def sort_gpus(gpus: Iterable[Gpu]) -> list[Gpu]:
    return sorted(gpus, key=lambda gpu: order(gpu.pci, gpu.uuid))


def order(pci: str, uuid: str) -> tuple[bool, int, str, str]:
    """Sort key by PCI address; devices without one come last."""
    address = pci_address(pci) or ""
    return not address, len(address), address, uuid  # the length first: a domain may have more than four digits


def pci_address(text: str) -> str | None:
    """Return the address as sysfs writes it, from what nvidia-smi, lspci or a person may write; None if it is none."""
    if re.fullmatch(r"[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", text):
        text = "0:" + text
    if (match := _PCI.fullmatch(text.lower())) is None:
        return None
    domain, bus, slot, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function}"


def gpu_name(gpu: Gpu) -> str:
    """Return the name of a GPU in notes."""
    return pci_address(gpu.pci) or gpu.uuid
