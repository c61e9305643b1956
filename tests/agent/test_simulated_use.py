"""Simulated devices that are chosen CPUs: how busy they are, and how much host memory the runs on them use."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from node_agent.devices import simulated as devices
from node_agent.devices.base import Observation
from node_agent.devices.simulated import BusyCpus, simulate_devices
from node_agent.measuring.observations import Observations, Observing
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.run_state.park_state import ParkStage, ParkState
from node_agent.run_state.share_plan import SharePlan, ShareRow
from node_agent.runs.spool_opening import open_spool

LIMIT = 20.0
FIRST = b"cpu  9 9 9 9\ncpu0 100 0 100 700 100 0 0 0 50 0\ncpu1 0 0 0 1000 0 0 0 0 0 0\nintr 5\n"
LATER = b"cpu  9 9 9 9\ncpu0 160 0 110 720 110 0 0 0 99 0\ncpu1 0 0 0 1100 0 0 0 0 0 0\nintr 5\n"


def test_the_time_in_which_cpus_worked_since_the_last_look() -> None:
    texts = iter((FIRST, LATER, LATER))
    busy = BusyCpus(lambda: next(texts))
    assert busy.percent([{0}, {1}, {0, 1}, {7}]) == [70, 0, 35, None]
    assert busy.percent([{0}]) == [None], "no time has passed"


async def test_chosen_cpus_are_observed_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "EVERY", 0.05)
    cpu = frozenset({min(os.sched_getaffinity(0))})
    async with contextlib.aclosing(simulate_devices("pcie-2", "n", cpu_sets=[cpu, cpu]).observe()) as seen:  # type: ignore[type-var]
        async with asyncio.timeout(LIMIT):
            async for each in seen:
                used = [device.utilisation_percent for device in each.devices]
                if None not in used:
                    break
    assert [device.index for device in each.devices] == [0, 1]
    assert used[0] == used[1]
    assert 0 <= (used[0] or 0) <= 100
    assert [each async for each in simulate_devices("pcie-2", "n").observe()] == []


class Provider:
    """Looks once."""

    inventory = simulate_devices("pcie-2", "n").inventory

    def cpus(self, _indices: object) -> None: ...
    def environment(self, _indices: object) -> dict[str, str]:
        return {}

    async def observe(self):  # type: ignore[no-untyped-def]
        yield devices.Observed((Observation(0, None, 40), Observation(1, None, 0)))


@pytest.mark.parametrize("is_simulated", [True, False])
async def test_the_memory_is_that_of_the_runs_that_share_a_device_and_execute(tmp_path: Path, is_simulated: bool) -> None:
    spool = open_spool(tmp_path / "spool.db")
    try:
        one, parked = RunKey(1, 1), RunKey(2, 1)
        plan = SharePlan(3, 1, (ShareRow((one,)), ShareRow((parked,))), 60.0, (0,))
        here = {"pid": os.getpid(), "start_ticks": 1, "share": plan}
        spool.remember(
            [
                RunRecord(one, RunPhase.RUNNING, **here),  # type: ignore[arg-type]
                RunRecord(parked, RunPhase.RUNNING, park=ParkState(stage=ParkStage.PARKED), **here),  # type: ignore[arg-type]
            ]
        )
        observing = Observing(Provider(), spool, tmp_path, lambda: None, simulated=is_simulated)  # type: ignore[arg-type]
        await observing.run()
        seen = observing.latest
        assert isinstance(seen, Observations)
        memory = [device.memory_used_mib for device in seen.devices]
        assert [device.utilisation_percent for device in seen.devices] == [40, 0]
        if is_simulated:
            assert memory[0], "this process has some"
            assert memory[0] < 4096, "and it is counted once"
            assert memory[1] is None
        else:
            assert memory == [None, None]
    finally:
        spool.close()
