"""The devices of a node for people: a tree of text, or JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from node_agent.devices.base import Device, Inventory
from node_agent.devices.reading import Reading
from node_agent.devices.tree import pci_address


def picture(inventory: Inventory, notes: Sequence[str], reading: Reading | None = None) -> str:
    lines = [_capacity(inventory, reading), *_cells(inventory, _columns(inventory, addresses(reading)))]
    if notes:
        lines += ["", "Notes:", *(f"- {note}" for note in notes)]
    return "\n".join(lines)


def as_json(inventory: Inventory, notes: Sequence[str], reading: Reading | None = None) -> dict[str, Any]:
    pci = addresses(reading)
    devices = [asdict(device) | {"pci": pci.get(device.uuid)} for device in inventory.devices]
    return asdict(inventory) | {"devices": devices, "notes": list(notes)}


def addresses(reading: Reading | None) -> Mapping[str, str]:
    """Return PCI addresses by UUID; a MIG instance has that of its GPU."""
    gpus = reading.gpus if reading else ()
    return {
        uuid: pci for gpu in gpus if (pci := pci_address(gpu.pci)) for uuid in (gpu.uuid, *(one.uuid for one in gpu.mig or ()))
    }


def _capacity(inventory: Inventory, reading: Reading | None) -> str:
    count = len(inventory.devices)
    said = [f"{count} device{'s' if count != 1 else ''}"]
    if inventory.cpu_milli:  # a recorded machine says nothing of its host
        said += [f"{inventory.cpu_milli / 1000:g} CPUs", f"{inventory.memory_mib / 1024:.1f} GiB"]
    if reading and reading.driver:
        said.append(f"driver {reading.driver}")
    return ", ".join(said)


def _columns(inventory: Inventory, pci: Mapping[str, str]) -> list[str]:
    """Return a line for each device, in columns; columns that are empty for all devices are left out."""
    rows = [_row(device, pci.get(device.uuid, "")) for device in inventory.devices]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width).rstrip() for row in rows]


def _row(device: Device, pci: str) -> tuple[str, ...]:
    return (
        f"{device.index}:",
        device.model,
        f"{device.memory_mib / 1024:.1f} GiB" if device.memory_mib else "",
        pci,
        "" if device.numa_node is None else f"NUMA {device.numa_node}",
        "" if device.link_domain is None else f"NVLink {device.link_domain}",
        device.uuid,
        f"FAULTY: {device.fault}" if device.fault else "",
    )


def _cells(inventory: Inventory, lines: Sequence[str]) -> Iterator[str]:
    """Yield the line of each cell before those of its children."""

    def lines_inside(depth: int, devices: Sequence[Device], indent: str) -> Iterator[str]:
        if depth == len(inventory.levels):
            for device in devices:
                bend, _ = _guides(device is devices[-1])
                yield indent + bend + lines[device.index]
            return
        numbers = list(dict.fromkeys(device.path[depth] for device in devices))
        for number in numbers:
            bend, guide = _guides(number == numbers[-1])
            yield f"{indent}{bend}{inventory.levels[depth]} {number}"
            yield from lines_inside(depth + 1, [one for one in devices if one.path[depth] == number], indent + guide)

    yield from lines_inside(0, inventory.devices, "")


def _guides(last: bool) -> tuple[str, str]:
    return ("└─ ", "   ") if last else ("├─ ", "│  ")
