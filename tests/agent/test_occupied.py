"""Devices that runs hold which the agent does not know: faulty, until these runs have ended."""

from collections.abc import AsyncIterator

import pytest

from node_agent.devices import occupied
from node_agent.devices.base import Observation, Observed
from node_agent.devices.occupied import OccupiedDevices
from node_agent.devices.simulated import Simulated, simulate_devices

SHOWN = simulate_devices("pcie-2", "n1", [0, 1])
FIRST, SECOND = (device.uuid for device in SHOWN.inventory.devices)


class Observing(Simulated):
    """Devices of which the second has a fault of its own."""

    async def observe(self) -> AsyncIterator[Observed]:
        for memory in (10, 20):
            yield Observed((Observation(0, memory), Observation(1, memory, fault="XID 79")))


def ends_after(looks: int) -> list[dict[str, str]]:
    return [{FIRST: "run 7.1 is alive", SECOND: "run 7.1 is alive"}] * looks + [{}]


async def test_the_fault_is_added_to_what_is_observed() -> None:
    finds = iter(ends_after(1))
    provider = Observing(SHOWN.inventory, SHOWN.cpu_sets)
    devices = OccupiedDevices(provider, lambda: next(finds), {FIRST: "run 7.1 is alive"})
    seen = [[(each.memory_used_mib, each.fault) for each in observed.devices] async for observed in devices.observe()]
    assert seen == [[(10, "run 7.1 is alive"), (10, "XID 79")], [(20, ""), (20, "XID 79")]]


async def test_a_provider_that_observes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupied, "EVERY", 0.0)
    finds = iter(ends_after(1))
    devices = OccupiedDevices(SHOWN, lambda: next(finds), {FIRST: "run 7.1 is alive"})
    assert [device.fault for device in devices.inventory.devices] == ["run 7.1 is alive", ""]
    assert devices.inventory.with_faults({0: ""}) == SHOWN.inventory
    seen = [[each.fault for each in observed.devices] async for observed in devices.observe()]
    assert seen == [["run 7.1 is alive", ""], ["run 7.1 is alive"] * 2, ["", ""]]
    assert devices.inventory == SHOWN.inventory
