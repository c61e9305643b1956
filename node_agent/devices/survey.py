"""Reads the GPUs of a machine: everything that NVML and the kernel report, and what they cannot."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import ParamSpec, TypeVar, get_args

from node_agent.devices import nvml
from node_agent.devices.reading import Gpu, Level, MigInstance, Pair, Reading

P = ParamSpec("P")
T = TypeVar("T")

SYSFS = Path("/sys/bus/pci/devices")

_LEVELS: Mapping[int, Level] = dict(zip(range(0, 60, 10), get_args(Level), strict=True))


@dataclass(slots=True)
class _Asking:
    """Asks, and collects the problems, each once."""

    problems: dict[str, None] = field(default_factory=dict)

    def ask(self, whom: str, what: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call it; None if there is no answer. A missing feature of a card also gives None, and is no problem."""
        try:
            return call(*args, **kwargs)
        except (nvml.Failed, ValueError) as error:
            if nvml.too_old(error):
                self.note(f"this driver is too old to tell {what}")
            elif not nvml.is_unsupported(error):
                self.note(f"{whom}: {what} could not be read: {error}")
            return None

    def note(self, problem: str) -> None:
        self.problems[problem] = None


@dataclass(frozen=True, slots=True)
class _Card:
    label: str
    handle: nvml.Handle
    links: Counter[nvml.Link]
    gpu: Gpu


def read(sysfs: Path = SYSFS) -> Reading:
    """Read the GPUs. NVML must be open. Raises `nvml.Failed` if not even the number of GPUs is available."""
    asking = _Asking()
    cards = [card for index in range(nvml.count()) if (card := _card(asking, index, sysfs)) is not None]
    return Reading(
        driver=asking.ask("the driver", "its version", nvml.driver) or "",
        nvml=asking.ask("the driver", "the version of NVML", nvml.version) or "",
        gpus=tuple(card.gpu for card in cards),
        pairs=tuple(_pair(asking, a, b) for a, b in combinations(cards, 2)),
        problems=tuple(asking.problems),
    )


def _card(asking: _Asking, index: int, sysfs: Path) -> _Card | None:
    """Read one GPU; None for a GPU without a UUID: it cannot be told from others."""
    label = f"GPU {index}"
    try:
        handle = nvml.handle(index)
        uuid = nvml.uuid(handle)
    except (nvml.Failed, ValueError) as error:
        asking.note(f"{label}: left out, since it does not say which it is: {error}")
        return None
    fault, memory_mib = "", 0
    try:
        memory_mib = nvml.total_mib(handle)
    except nvml.Failed as error:
        fault = nvml.fault(error) or f"the size of its memory could not be read: {error}"
    pci = asking.ask(label, "its PCI address", nvml.pci, handle) or ""
    links = Counter(asking.ask(label, "its NVLinks", nvml.links, handle) or ())
    if any(link.end == "" for link in links):
        asking.note("this driver does not tell what NVLinks lead to: only those to GPUs of this machine are known")
    gpu = Gpu(
        uuid=uuid,
        name=asking.ask(label, "its name", nvml.name, handle) or "",
        pci=pci,
        memory_mib=memory_mib,
        minor=asking.ask(label, "its minor number", nvml.minor, handle),
        numa_node=_numa_node(sysfs / pci),
        cpus=asking.ask(label, "its nearest CPUs", nvml.cpus, handle) or _cpus(sysfs / pci),
        mig=_instances(asking, label, handle),
        fabric=asking.ask(label, "its fabric", nvml.fabric, handle) or "",
        switch_links=sum(times for link, times in links.items() if link.end == "switch"),
        fault=fault,
    )
    return _Card(label, handle, links, gpu)


def _instances(asking: _Asking, label: str, handle: nvml.Handle) -> tuple[MigInstance, ...] | None:
    handles = asking.ask(label, "whether it is in MIG mode", nvml.instances, handle)
    if handles is None:
        return None
    found = []
    for place, instance in enumerate(handles):
        whom = f"{label}, MIG instance {place}"
        uuid = asking.ask(whom, "its uuid", nvml.uuid, instance)
        memory_mib = asking.ask(whom, "the size of its memory", nvml.total_mib, instance)
        if uuid is None or memory_mib is None:
            asking.note(f"{whom}: left out")
        else:
            name = asking.ask(whom, "its name", nvml.name, instance) or ""
            found.append(MigInstance(uuid=uuid, name=name, memory_mib=memory_mib))
    return tuple(found)


def _pair(asking: _Asking, a: _Card, b: _Card) -> Pair:
    level = asking.ask(f"{a.label} and {b.label}", "what they have in common", nvml.common_ancestor, a.handle, b.handle)
    # Either end reports a link between them; if one end cannot, the other does.
    links = max(_links_to(a.links, b.gpu.pci), _links_to(b.links, a.gpu.pci))
    return Pair(a=a.gpu.uuid, b=b.gpu.uuid, level=None if level is None else _LEVELS.get(level), links=links)


def _links_to(links: Counter[nvml.Link], pci: str) -> int:
    return sum(times for link, times in links.items() if link.end != "switch" and link.pci == pci)


def _numa_node(device: Path) -> int | None:
    with suppress(OSError, ValueError):
        node = int((device / "numa_node").read_text())
        return node if node >= 0 else None
    return None


def _cpus(device: Path) -> tuple[int, ...]:
    """Return the CPUs of a list such as 0-15,32-47."""
    with suppress(OSError, ValueError):
        return tuple(
            cpu for part in (device / "local_cpulist").read_text().strip().split(",") for cpu in _range(part.split("-"))
        )
    return ()


def _range(ends: Sequence[str]) -> range:
    return range(int(ends[0]), int(ends[-1]) + 1)
