"""The override file: an operator's corrections for a machine whose driver says too little, or lies (docs/devices.md)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from node_agent.devices.base import Device, Inventory
from node_agent.devices.reading import Gpu, Reading
from node_agent.devices.tree import Leaf, Tree, leaves, order, pci_address

ABSENT = "the device tree file names it, and the driver does not list it"

_Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]
_Number = Annotated[int, Field(ge=0, lt=1024)]


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Place(_Written):
    path: tuple[_Number, ...] = ()
    link_domain: _Number | None = None


class Override(_Written):
    """The content of the file. Without `devices` only `leave_out` counts, and the driver's levels make the tree of the rest."""

    levels: Annotated[tuple[_Name, ...], Field(max_length=16)] = ()
    devices: Mapping[str, Place] = {}
    """Places of devices, by UUID or PCI address; the name of a GPU in MIG mode means all its instances."""
    leave_out: tuple[str, ...] = ()
    absent: Literal["error", "faulty"] = "error"
    """How to treat a device that is named and missing: `faulty` keeps its place and its index, with a fault."""
    unlisted: Literal["error", "leave_out"] = "error"
    """How to treat a device that is present and not named."""


class Unfit(Exception):
    """One line for each problem of the file, by itself or on this machine, and what to do about it."""

    def __init__(self, problems: Iterable[str]) -> None:
        super().__init__("\n".join(f"  {problem}" for problem in problems))


def parse(text: str) -> Override:
    """Parse the file, checked as far as possible without the machine; raises `Unfit`."""
    try:
        # Read everything as text: to YAML, an address such as 0000:07:00.0 is a number in base 60.
        override = Override.model_validate(yaml.load(text, yaml.BaseLoader) or {})
    except ValidationError as error:
        raise Unfit(map(_explain, error.errors())) from error
    except yaml.YAMLError as error:
        raise Unfit([" ".join(str(error).split())]) from error
    if problems := list(_contradictions(override)):
        raise Unfit(problems)
    devices = {_name(key): place for key, place in override.devices.items()}
    return override.model_copy(update={"devices": devices, "leave_out": tuple(map(_name, override.leave_out))})


def leave_out(reading: Reading, override: Override) -> Reading:
    """Return the reading without what the override leaves out; raises `Unfit`."""
    left_out = set(override.leave_out)
    gpus: list[Gpu] = []
    for gpu in reading.gpus:
        names, instances = {_name(gpu.uuid), _name(gpu.pci)}, gpu.mig or ()
        left_out -= names | {one.uuid for one in instances}
        if names.isdisjoint(override.leave_out):
            kept = tuple(one for one in instances if one.uuid not in override.leave_out)
            gpus.append(gpu if kept == instances else gpu.model_copy(update={"mig": kept}))
    if left_out and override.absent == "error":
        advice = "this machine has no such device; correct the name, or write absent: faulty if it may be away"
        raise Unfit(f"leave_out: {name}: {advice}" for name in sorted(left_out))
    here = {gpu.uuid for gpu in gpus}
    pairs = tuple(pair for pair in reading.pairs if {pair.a, pair.b} <= here)
    return reading.model_copy(update={"gpus": tuple(gpus), "pairs": pairs})


def inventory(
    reading: Reading, tree: Tree, override: Override | None, cpu_milli: int, memory_mib: int
) -> tuple[Inventory, tuple[str, ...]]:
    """Return what the node offers, and notes about it. `tree` is of `reading`, which lacks what is left out."""
    found = leaves(reading)
    if override is None or not override.devices:
        levels, notes = tree.levels, tree.notes + tree.link_notes
        devices = [_device(leaf, tree.paths[leaf.uuid], tree.link_domains.get(leaf.uuid)) for leaf in found]
    else:
        levels = override.levels
        devices, notes = _apply_override(found, tree, override)
    numbered = tuple(replace(device, index=index) for index, device in enumerate(devices))
    return Inventory(cpu_milli, memory_mib, levels, numbered), reading.problems + notes


def _apply_override(found: Sequence[Leaf], tree: Tree, override: Override) -> tuple[list[Device], tuple[str, ...]]:
    """Return the devices in order, as the file places them; raises `Unfit`."""
    named, absent = _match_names(found, override)
    unlisted = [leaf for leaf in found if not named[leaf.uuid]]
    problems = [
        f"devices: {leaf.uuid} is named by {' and by '.join(named[leaf.uuid])}; take one of them out"
        for leaf in found
        if len(named[leaf.uuid]) > 1
    ]
    if override.absent == "error":
        advice = "correct the name, take it out, or write absent: faulty to keep its place while it is away"
        problems += [f"devices: {name}: this machine has no such device; {advice}" for name in absent]
    if override.unlisted == "error":
        advice = "give it a path, put it under leave_out, or write unlisted: leave_out"
        problems += [f"devices: {leaf.uuid} ({leaf.gpu.pci}) is here, and is not named; {advice}" for leaf in unlisted]
    if problems:
        raise Unfit(problems)

    by_file = any(place.link_domain is not None for place in override.devices.values())
    placed: list[tuple[tuple[bool, int, str, str], Device]] = []
    for leaf in found:
        for name in named[leaf.uuid]:
            place = override.devices[name]
            domain = place.link_domain if by_file else tree.link_domains.get(leaf.uuid)
            placed.append((order(leaf.gpu.pci, leaf.gpu.uuid), _device(leaf, place.path, domain)))
    for name in absent:
        place = override.devices[name]
        placed.append((order(name, name), Device(0, f"absent-{name}", "", 0, place.path, None, place.link_domain, ABSENT)))
    devices = [device for _, device in sorted(placed, key=itemgetter(0))]
    if problems := _unevenness(override.levels, devices):
        raise Unfit(problems)
    notes = [f"{leaf.uuid} is left out: the device tree file does not name it" for leaf in unlisted]
    notes += [f"{name}: {ABSENT}; it keeps its place, as faulty" for name in absent]
    return devices, tuple(notes) + (() if by_file else tree.link_notes)


def _device(leaf: Leaf, path: tuple[int, ...], domain: int | None) -> Device:
    return Device(0, leaf.uuid, leaf.model, leaf.memory_mib, path, leaf.gpu.numa_node, domain, leaf.gpu.fault)


def _match_names(found: Iterable[Leaf], override: Override) -> tuple[dict[str, list[str]], list[str]]:
    """Return the names that the file has for each device, by UUID, and the names that match no device."""
    named = {}
    for leaf in found:
        names = dict.fromkeys(map(_name, (leaf.uuid, leaf.gpu.uuid, leaf.gpu.pci)))
        named[leaf.uuid] = [name for name in names if name in override.devices]
    met = {name for names in named.values() for name in names}
    return named, [name for name in override.devices if name not in met]


def _contradictions(override: Override) -> Iterable[str]:
    """Yield problems of the file that hold on any machine."""
    for level, times in Counter(override.levels).items():
        if times > 1:
            yield f"levels: {level} stands there {times} times; names of levels are unique, so choose others"
        if level in ("device", "node"):
            yield f"levels: {level} is a level of every node; choose another name"
    if override.levels and not override.devices:
        yield "devices: is missing; levels say nothing without a path for each device (a file may also have leave_out alone)"
    for name, times in Counter(map(_name, (*override.devices, *override.leave_out))).items():
        if times > 1:
            yield f"devices: {name} stands in the file {times} times, as a UUID or PCI address in different spellings; keep one"
    for key in (*override.devices, *override.leave_out):
        if not key.startswith(("GPU-", "MIG-")) and pci_address(key) is None:
            yield (
                f"devices: {key}: is neither a UUID (GPU-..., MIG-...) nor a PCI address (0000:07:00.0); take one"
                " from `ebb-agent devices`"
            )
    wanted = len(override.levels)
    for key, place in override.devices.items():
        if len(place.path) != wanted:
            has = f"has {len(place.path)} numbers, and levels has {wanted}"
            yield f"devices.{key}.path: {has}; write one for each, outermost first"


def _unevenness(levels: Sequence[str], devices: Sequence[Device]) -> list[str]:
    """Return why cells of a level are not alike. Cells in a parent are 0, 1, ..., or a number was mistyped."""
    problems = []
    for depth, level in enumerate(levels):
        cells = Counter(device.path[: depth + 1] for device in devices)
        for parent in sorted({cell[:-1] for cell in cells}):
            numbers = sorted(cell[-1] for cell in cells if cell[:-1] == parent)
            if numbers != list(range(len(numbers))):
                problems.append(
                    f"devices: the numbers of level {level} below {list(parent)} are {numbers};"
                    " they count 0, 1, ... within their parent: correct the paths"
                )
        if len(set(cells.values())) > 1:
            (few, least), (many, most) = (pick(cells.items(), key=lambda cell: (cell[1], cell[0])) for pick in (min, max))
            problems.append(
                f"levels: {level}: the cell {list(few)} has {least} of the devices, and {list(many)} has {most}; all cells of a"
                " level have to be alike: correct the paths, or leave the level out"
            )
    return problems


def _name(key: str) -> str:
    return pci_address(key) or key


def _explain(error: Mapping[str, Any]) -> str:
    field = ".".join(map(str, error["loc"])) or "the file"
    if error["type"] == "extra_forbidden":
        return f"{field}: there is no such field; take it out"
    if error["type"] in ("model_type", "mapping_type"):
        return f"{field}: has to be fields with values, such as {'{path: [0, 0]}' if error['loc'] else 'levels: [socket]'}"
    return f"{field}: {error['msg']}; is {str(error['input'])[:60]!r}"
