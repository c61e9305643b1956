"""Simulated devices, for machines without GPUs.

A simulated device is a set of the host's CPUs. A run is confined to the CPUs of its devices, so two runs on one device
share real hardware and slow each other down as they would on a GPU. The capacity is the profile's, whatever the host has:
a laptop can pose as a node with 128 cores. If the sets were chosen (`cpus`), their use is observed, as with GPUs.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

from node_agent.devices.base import Device, Inventory, Observation, Observed
from node_agent.errors import UnknownDevice, UnknownProfile

EVERY = 1.0
"""Seconds between two looks."""
_IDLE = (3, 4)
"""Positions of the times in which a CPU was idle, or waited for a disk."""
_COUNTED = 8
"""Number of times that are summed; the ones that follow are parts of these."""
_NAMESPACE = uuid.UUID("6b1f4c0e-58ad-5d0c-9c1b-1c0a6f1d7e52")


@dataclass(frozen=True, slots=True)
class Profile:
    """The shape of a node. `levels` gives for each level, outermost first, its name and how many a parent has."""

    cores: int
    memory_gib: int
    levels: tuple[tuple[str, int], ...] = ()
    devices: int = 0
    """Devices in each cell of the innermost level."""
    model: str = ""
    device_memory_gib: int = 0


PROFILES: Mapping[str, Profile] = {
    "dgx-a100": Profile(128, 1024, (("socket", 2), ("switch", 2)), 2, "Simulated A100-SXM4-80GB", 80),
    "pcie-8": Profile(64, 512, (("socket", 2),), 4, "Simulated V100-PCIE-32GB", 32),
    "pcie-2": Profile(16, 128, (("socket", 2),), 1, "Simulated V100-PCIE-32GB", 32),
    "cpu-20c": Profile(20, 160),
}


@dataclass(frozen=True, slots=True)
class Simulated:
    """A `Provider` of simulated devices."""

    inventory: Inventory
    cpu_sets: tuple[frozenset[int], ...]
    observed: bool = False
    """Whether the use of the CPUs is observed, because an operator chose them as devices."""

    def cpus(self, indices: Sequence[int]) -> frozenset[int] | None:
        self._check(indices)
        return frozenset().union(*(self.cpu_sets[i] for i in indices)) if indices else None

    def environment(self, indices: Sequence[int]) -> Mapping[str, str]:
        # A made-up UUID would make CUDA programs fail; with an empty list they see no GPU, even if the host has some.
        self._check(indices)
        return {"CUDA_VISIBLE_DEVICES": ""}

    async def observe(self) -> AsyncIterator[Observed]:
        busy = BusyCpus()
        while self.observed:
            await asyncio.sleep(EVERY)
            used = busy.percent(self.cpu_sets)
            yield Observed(tuple(Observation(index, None, percent) for index, percent in enumerate(used)))

    def _check(self, indices: Sequence[int]) -> None:
        for index in indices:
            if not 0 <= index < len(self.cpu_sets):
                raise UnknownDevice(index=index, known=", ".join(map(str, range(len(self.cpu_sets)))) or "none")


def device_count(profile: str) -> int:
    """Return how many devices a node of this profile has."""
    shape = PROFILES[profile]
    return prod(count for _, count in shape.levels) * shape.devices


def simulate_devices(
    profile: str, node: str, host_cpus: Sequence[int] | None = None, cpu_sets: Sequence[frozenset[int]] = ()
) -> Simulated:
    """Return the devices of `profile` on `node`; their UUIDs are the same at every start. `cpu_sets` has the CPUs of each
    device. Without it, the CPUs of the host are spread evenly."""
    if profile not in PROFILES:
        raise UnknownProfile(name=profile, known=", ".join(PROFILES))
    shape = PROFILES[profile]
    paths = [path for path in product(*(range(count) for _, count in shape.levels)) for _ in range(shape.devices)]
    devices = tuple(
        Device(index, f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}", shape.model, shape.device_memory_gib * 1024, path)
        for index, path in enumerate(paths)
    )
    inventory = Inventory(shape.cores * 1000, shape.memory_gib * 1024, tuple(name for name, _ in shape.levels), devices)
    cpus = sorted(os.sched_getaffinity(0) if host_cpus is None else host_cpus)
    return Simulated(inventory, tuple(cpu_sets) or _spread(cpus, len(devices)), bool(cpu_sets))


def _spread(cpus: Sequence[int], devices: int) -> tuple[frozenset[int], ...]:
    """Return each device's CPUs: neighbors, disjoint if there are enough of them, else one each in turn."""
    if len(cpus) < devices:
        return tuple(frozenset({cpus[i % len(cpus)]}) for i in range(devices))
    return tuple(frozenset(cpus[i * len(cpus) // devices : (i + 1) * len(cpus) // devices]) for i in range(devices))


def kernel_counts() -> bytes:
    return Path("/proc/stat").read_bytes()


class BusyCpus:
    """CPU use between two looks."""

    def __init__(self, counts: Callable[[], bytes] = kernel_counts) -> None:
        self._counts = counts
        self._before = times_of(counts())

    def percent(self, sets: Sequence[Collection[int]]) -> list[int | None]:
        """Return for each set of CPUs the percentage of time since the last look in which they worked; None: not known."""
        before, self._before = self._before, times_of(self._counts())
        return [_percent(before, self._before, cpus) for cpus in sets]


def times_of(text: bytes) -> dict[int, tuple[int, int]]:
    """Return for each CPU how long it has worked, and how long it was online."""
    found = {}
    for line in text.splitlines():
        name, *rest = line.split()
        if name.startswith(b"cpu") and name[3:].isdigit():
            times = [int(each) for each in rest[:_COUNTED]]
            found[int(name[3:])] = sum(times) - sum(times[place] for place in _IDLE), sum(times)
    return found


def _percent(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]], cpus: Collection[int]) -> int | None:
    known = [cpu for cpu in cpus if cpu in before and cpu in after]
    passed = sum(after[cpu][1] - before[cpu][1] for cpu in known)
    if passed <= 0:
        return None
    worked = sum(after[cpu][0] - before[cpu][0] for cpu in known)
    return max(0, min(100, round(100 * worked / passed)))
