"""Devices on which runs compute that this agent does not know: they are reported as faulty until these runs have ended."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace

from node_agent.devices.base import Inventory, Observation, Observed, Provider

EVERY = 1.0
"""Seconds between two looks."""

Held = Mapping[str, str]
"""Devices that are held, by UUID, and the text of the fault of each."""


class OccupiedDevices:
    """A `Provider`. `find` returns the devices that are held now, and `held` is what it returned first."""

    def __init__(self, provider: Provider, find: Callable[[], Held], held: Held) -> None:
        self._provider = provider
        self._find = find
        self._held = held

    @property
    def inventory(self) -> Inventory:
        inventory = self._provider.inventory
        return inventory.with_faults({index: fault for index, fault in self._faults().items() if fault})

    def cpus(self, indices: Sequence[int]) -> frozenset[int] | None:
        return self._provider.cpus(indices)

    def environment(self, indices: Sequence[int]) -> Mapping[str, str]:
        return self._provider.environment(indices)

    async def observe(self) -> AsyncIterator[Observed]:
        async for observed in self._provider.observe():
            if self._held:
                await self._look()
            faults = self._faults()
            yield replace(
                observed, devices=tuple(replace(each, fault=each.fault or faults[each.index]) for each in observed.devices)
            )
        while self._held:  # the provider observes nothing
            yield self._observed()
            await asyncio.sleep(EVERY)
            await self._look()
            if not self._held:
                yield self._observed()

    async def _look(self) -> None:
        self._held = await asyncio.to_thread(self._find)

    def _observed(self) -> Observed:
        return Observed(tuple(Observation(index, fault=fault) for index, fault in self._faults().items()))

    def _faults(self) -> dict[int, str]:
        return {device.index: self._held.get(device.uuid, "") for device in self._provider.inventory.devices}
