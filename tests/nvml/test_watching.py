"""What is seen of devices while jobs use them, through the real pynvml in a real child process."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import pytest

from node_agent.devices import gpus
from node_agent.devices.base import ActivitySource, Device, Inventory, Observation, Observed, ProcessMemory
from node_agent.devices.gpus import Gpus
from node_agent.devices.reading import MigInstance, Reading
from node_agent.errors import UnknownDevice
from tests.agent.conftest import alive, until
from tests.nvml import shim as codes
from tests.nvml.conftest import PlugIn
from tests.nvml.shim import Shim
from tests.nvml.test_reading import children, machine

RECOVERY_EVENT = 0x8000
LINES = 60
"""In which something has to come about: a second each."""


def provider(reading: Reading, limit_seconds: float = 30.0, start_limit_seconds: float = 60.0) -> Gpus:
    uuids = [uuid for gpu in reading.gpus for uuid in ([gpu.uuid] if gpu.mig is None else [one.uuid for one in gpu.mig])]
    devices = tuple(Device(index, uuid, "A GPU", 81920, ()) for index, uuid in enumerate(uuids))
    limits = {"limit_seconds": limit_seconds, "start_limit_seconds": start_limit_seconds}
    return Gpus(Inventory(64000, 512 << 10, (), devices), reading, **limits)


@contextlib.asynccontextmanager
async def watching(devices: Gpus) -> AsyncGenerator[AsyncGenerator[Observed, None], None]:
    """Afterwards no child is left."""
    async with contextlib.aclosing(devices.observe()) as seen:
        yield seen
    await asyncio.to_thread(until, lambda: not list(children()))


async def first(seen: AsyncGenerator[Observed, None], what: Callable[[Observed], bool]) -> Observed:
    for _ in range(LINES):
        if what(observed := await anext(seen)):
            return observed
    raise AssertionError(f"did not come about; the last was {observed}")


def faults(observed: Observed) -> list[str]:
    return [device.fault for device in observed.devices]


async def test_memory_utilisation_and_processes_are_seen(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(2))
    driver.memory(0, 3000)
    driver.utilisation(0, 97)
    driver.utilisation(1, None)
    driver.processes(0, {4242: 2500, 4243: 500})
    before = time.monotonic()
    async with watching(provider(reading)) as seen:
        assert (look := await anext(seen)) == Observed(
            devices=(Observation(0, 3000, 97), Observation(1, 0, None)),
            processes=(ProcessMemory(4242, 0, 2500), ProcessMemory(4243, 0, 500)),
        )
        assert look.began is not None
        assert before < look.began < time.monotonic()
        driver.memory(0, 0)
        driver.processes(0, {})
        observed = await first(seen, lambda observed: not observed.processes)
        assert observed.devices[0].memory_used_mib == 0


async def test_an_old_driver_is_asked_by_its_own_calls(old_library: Path, plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(1), old_library)
    driver.memory(0, 3000)
    driver.processes(0, {4242: 2500})
    async with watching(provider(reading)) as seen:
        assert await anext(seen) == Observed((Observation(0, 3000, 0),), (ProcessMemory(4242, 0, 2500),))


async def test_memory_that_is_not_told_by_process_is_the_only_ones(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(2))
    driver.memory(0, 3000)
    driver.processes(0, {4242: None})
    driver.processes(1, {4243: None, 4244: 100})
    async with watching(provider(reading)) as seen:
        assert (await anext(seen)).processes == (ProcessMemory(4242, 0, 3000), ProcessMemory(4244, 1, 100))


async def test_what_may_not_be_asked_is_unknown_and_no_fault(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(1))
    driver.processes(0, {4242: 2500})
    refused = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetComputeRunningProcesses_v3")
    for function in (*refused, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTotalEccErrors", "nvmlEventSetCreate"):
        driver.fail(function, codes.NO_PERMISSION)
    async with watching(provider(reading)) as seen:
        for _ in range(2):
            assert await anext(seen) == Observed((Observation(0),))


async def test_a_lost_gpu_is_faulty_while_it_is_lost(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(2))
    async with watching(provider(reading)) as seen:
        assert faults(await anext(seen)) == ["", ""]
        driver.lose(1)
        observed = await first(seen, lambda observed: faults(observed) != ["", ""])
        assert observed.devices[1] == Observation(1, fault="the GPU is lost: it no longer answers on its bus")
        assert observed.devices[0] == Observation(0, 0, 0)
        driver.lose(1, False)
        await first(seen, lambda observed: faults(observed) == ["", ""])


async def test_a_gpu_that_the_driver_does_not_list_is_faulty(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(3))
    driver.lose(1)  # already when the child starts
    async with watching(provider(reading)) as seen:
        assert faults(await anext(seen)) == ["", "the driver no longer shows it", ""]


async def test_a_gpu_whose_memory_was_not_told_at_the_start_is_not_well_since_it_can_be_watched(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(1))
    driver.utilisation(0, 101)
    why = "the size of its memory could not be read: Unknown Error"
    inventory = Inventory(1000, 1024, (), (Device(0, reading.gpus[0].uuid, "A GPU", 0, (), fault=why),))
    async with watching(Gpus(inventory, reading)) as seen:
        assert await anext(seen) == Observed((Observation(0, 0, 100, why),))


async def test_an_xid_of_a_jobs_making_is_no_fault_and_one_of_the_devices_is(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(3))
    async with watching(provider(reading)) as seen:
        await anext(seen)
        for xid in (13, 31, 43, 45, 68, 109):
            driver.xid(0, xid)
        driver.xid(1, 79)  # behind them in the queue: once it is seen, they were
        observed = await first(seen, lambda observed: any(faults(observed)))
        assert faults(observed) == ["", "XID 79: the GPU has fallen off the bus", ""]
        assert faults(await anext(seen)) == faults(observed)


async def test_the_driver_is_asked_at_once_when_something_happens(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(2))
    async with watching(provider(reading)) as seen:
        await anext(seen)
        driver.health(0, remap_pending=True)
        driver.xid(0, 94)  # one program's end, and what else the driver makes of it
        observed = await first(seen, lambda observed: any(faults(observed)))
        assert faults(observed) == ["bad memory waits for a reset to be taken out of use", ""]
        driver.xid(1, 48)
        driver.health(1, recovery=1)
        driver.event(1, RECOVERY_EVENT)
        both = "XID 48: an uncorrectable memory error; the driver asks for a reset of the GPU"
        await first(seen, lambda observed: faults(observed)[1] == both)
        driver.health(0)
        driver.health(1)
        driver.event(1, RECOVERY_EVENT)
        await first(seen, lambda observed: faults(observed) == ["", ""])


@contextlib.contextmanager
def polling() -> Iterator[Iterator[list[str]]]:
    """The faults that a child of our own sees, which need not wait half a minute to ask again."""
    code = "from node_agent.devices import sidecar, watching; watching._POLL_INTERVAL = 0.0"
    command = [sys.executable, "-c", f"{code}; sidecar.main(['watch', '--memory-rate', '20'])"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield ([fault for _, _, fault in json.loads(line)["devices"].values()] for line in child.stdout)
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(30) == 0  # it left by itself


def test_the_driver_is_also_asked_when_nothing_happens(plug_in: PlugIn) -> None:
    driver = plug_in(machine(2))
    driver.health(1, uncorrectable=2)
    with polling() as seen:
        assert next(seen) == ["", "uncorrectable memory errors since the last reset: 2"]
        driver.health(1, remap_failed=True)
        assert ["", "bad memory could not be taken out of use"] in (next(seen) for _ in range(LINES))
        driver.health(1)
        assert ["", ""] in (next(seen) for _ in range(LINES))


async def test_an_instance_has_its_own_memory_and_its_gpus_faults(plug_in: PlugIn) -> None:
    instances = tuple(MigInstance(uuid=f"MIG-{place}", name="A GPU MIG 1g.10gb", memory_mib=9728) for place in range(2))
    reading = machine(2)
    reading = reading.model_copy(update={"gpus": (reading.gpus[0].model_copy(update={"mig": instances}), reading.gpus[1])})
    driver = plug_in(reading)
    driver.memory((0, 1), 700)
    driver.processes((0, 1), {4242: 650})
    devices = provider(reading)
    assert devices.environment([1])["CUDA_VISIBLE_DEVICES"] == "MIG-1"
    async with watching(devices) as seen:
        assert await anext(seen) == Observed(
            devices=(Observation(0, 0), Observation(1, 700), Observation(2, 0, 0)),
            processes=(ProcessMemory(4242, 1, 650),),
        )
        driver.xid(0, 79)
        fallen = "XID 79: the GPU has fallen off the bus"
        await first(seen, lambda observed: faults(observed) == [fallen, fallen, ""])


async def test_processes_are_asked_for_once_a_second_and_no_more_often(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(4))
    began = time.monotonic()
    async with watching(provider(reading)) as seen:
        for _ in range(4):
            await anext(seen)
        calls = driver.calls("nvmlDeviceGetComputeRunningProcesses_v3")
        memory = driver.calls("nvmlDeviceGetMemoryInfo_v2")
        seconds = time.monotonic() - began
    assert 4 * 4 <= calls <= 4 * 5  # the next look may have begun
    assert calls <= 4 * (seconds + 1)
    assert memory <= 4 * 5  # nothing runs there whose wave could be seen


async def test_memory_is_sampled_where_one_process_is_alone(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(2))
    driver.processes(0, {4242: 100})
    driver.processes(1, {4243: 100, 4244: 100})
    async with watching(provider(reading)) as seen:
        await first(seen, lambda observed: [cycle.index for cycle in observed.cycles] == [0])
        processes = driver.calls("nvmlDeviceGetComputeRunningProcesses_v3")
        driver.processes(0, {4242: 100, 4245: 100})
        observed = await first(seen, lambda observed: len(observed.processes) == 4)
        assert observed.cycles == ()
        sampled = driver.calls("nvmlDeviceGetMemoryInfo_v2")
        for _ in range(3):
            assert (await anext(seen)).cycles == ()
        assert driver.calls("nvmlDeviceGetMemoryInfo_v2") - sampled <= 2 * 4
        assert driver.calls("nvmlDeviceGetComputeRunningProcesses_v3") > processes


async def test_the_wave_of_a_process_is_seen_and_is_not_anothers(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(2))
    driver.processes(1, {4242: 5000})
    driver.wave(1, 0.8, 1000, 5000)
    async with watching(provider(reading)) as seen:
        # Not the first that is seen: on a busy machine samples are late, and it takes more of them to know the wave.
        wave = (pytest.approx(0.8, rel=0.05), pytest.approx(1000, abs=500), pytest.approx(5000, abs=500))
        observed = await first(
            seen, lambda observed: [(c.period_seconds, c.minimum_mib, c.maximum_mib) for c in observed.cycles] == [wave]
        )
        (cycle,) = observed.cycles
        assert (cycle.pid, cycle.index) == (4242, 1)
        assert 0 < cycle.confidence <= 1
        driver.memory(1, 2000)
        driver.processes(1, {5555: 5000})
        observed = await first(seen, lambda observed: observed.processes[0].pid == 5555)
        assert observed.cycles == ()
        observed = await first(seen, lambda observed: bool(observed.cycles))
        (cycle,) = observed.cycles
        assert (cycle.pid, cycle.period_seconds, cycle.minimum_mib, cycle.maximum_mib) == (5555, None, 2000, 2000)


async def test_the_period_of_the_power_is_seen_where_memory_shows_none(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(2))
    driver.processes(0, {4242: 5000})
    driver.processes(1, {4243: 5000})
    driver.memory(0, 5000)
    driver.power(0, 600, 1.6)
    driver.wave(1, 1.6, 1000, 5000)
    driver.power(1, 600, 1.6)
    async with watching(provider(reading)) as seen:
        about = pytest.approx(1.6, rel=0.05)
        observed = await first(
            seen, lambda observed: [each.period_seconds for each in observed.activity if each.index == 0] == [about]
        )
        (period,) = (each for each in observed.activity if each.index == 0)
        assert (period.pid, period.source) == (4242, ActivitySource.POWER)
        assert 0 < period.confidence <= 1
        await first(seen, lambda observed: [each.index for each in observed.activity] == [0])
        driver.processes(0, {4242: 2500, 4244: 2500})
        await first(seen, lambda observed: not observed.activity)


async def test_the_alias_of_a_short_period_is_not_told(plug_in: PlugIn) -> None:
    """Mini-batches of 0.11 s, which are measured each 0.1 s, look like mini-batches of 1.1 s."""
    driver = plug_in(reading := machine(2))
    driver.processes(0, {4242: 5000})
    driver.processes(1, {4243: 5000})
    driver.memory(0, 5000)
    driver.memory(1, 5000)
    driver.power(0, 600, 0.11)
    driver.power(1, 600, 1.1)
    async with watching(provider(reading)) as seen:
        await first(seen, lambda observed: [each.index for each in observed.activity] == [1])
        for _ in range(6):  # in which the other has been looked at as well
            observed = await anext(seen)
            assert [each.index for each in observed.activity] == [1], observed.activity


async def test_utilisation_is_asked_where_power_is_not_told(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(1))
    driver.processes(0, {4242: 5000})
    driver.memory(0, 5000)
    async with watching(provider(reading)) as seen:
        await first(seen, lambda observed: bool(observed.cycles))
        for _ in range(2):
            await anext(seen)
        calls = driver.calls("nvmlDeviceGetUtilizationRates")
        for _ in range(3):
            assert (await anext(seen)).activity == ()
        assert driver.calls("nvmlDeviceGetUtilizationRates") - calls >= 3 * 3, "several times a second"


async def test_a_driver_that_hangs_is_a_fault_of_all_devices_until_it_answers_again(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(2))
    async with watching(provider(reading, limit_seconds=2.0)) as seen:
        assert faults(await anext(seen)) == ["", ""]
        driver.xid(0, 79)
        fallen = "XID 79: the GPU has fallen off the bus"
        await first(seen, lambda observed: faults(observed) == [fallen, ""])
        (before,) = children()
        driver.hang("nvmlDeviceGetUtilizationRates")
        silent = "the driver does not answer"
        observed = await first(seen, lambda observed: faults(observed) == [silent, silent])
        assert observed == Observed((Observation(0, fault=silent), Observation(1, fault=silent)))
        driver.hang("nvmlDeviceGetUtilizationRates", False)
        # An XID is told once; the child that is there now was told by the agent.
        await first(seen, lambda observed: faults(observed) == [fallen, ""])
        assert list(children()) != [before]


async def test_a_driver_that_hangs_for_long_has_one_process_at_a_time(plug_in: PlugIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in uninterruptible sleep, which no signal ends."""

    class Stuck(subprocess.Popen[bytes]):
        started = 0
        held = True

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[call-overload]
            Stuck.started += 1

        def poll(self) -> int | None:
            return None if Stuck.held else super().poll()

    monkeypatch.setattr(gpus.subprocess, "Popen", Stuck)
    driver = plug_in(reading := machine(1))
    driver.hang("nvmlInitWithFlags")
    async with watching(provider(reading, start_limit_seconds=0.5)) as seen:
        assert faults(await anext(seen)) == ["the driver does not answer"]
        again = asyncio.ensure_future(anext(seen))
        done, _ = await asyncio.wait([again], timeout=4.0)
        assert not done
        assert Stuck.started == 1
        Stuck.held = False
        driver.hang("nvmlInitWithFlags", False)
        await again
        assert Stuck.started == 2


async def test_a_driver_that_goes_and_comes_back(plug_in: PlugIn) -> None:
    driver = plug_in(reading := machine(1))
    async with watching(provider(reading)) as seen:
        assert faults(await anext(seen)) == [""]
        driver.fail("nvmlInitWithFlags", codes.DRIVER_NOT_LOADED)
        (child,) = children()
        os.kill(child, signal.SIGSEGV)
        observed = await first(seen, lambda observed: faults(observed) != [""])
        assert "has ended" in faults(observed)[0]
        observed = await first(seen, lambda observed: "Driver Not Loaded" in faults(observed)[0])
        assert len(faults(observed)[0]) <= 256
        driver.fail("nvmlInitWithFlags", 0)
        await first(seen, lambda observed: faults(observed) == [""])


AGENT = """
import asyncio, sys
from node_agent.devices.base import Inventory
from node_agent.devices.gpus import Gpus
from node_agent.devices.reading import Reading

async def main():
    async for _ in Gpus(Inventory(1000, 1000), Reading()).observe():
        print("seen", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("hangs", [False, True])
def test_a_dead_agent_leaves_no_process(hangs: bool, plug_in: PlugIn) -> None:
    driver = plug_in(machine(2))
    with subprocess.Popen([sys.executable, "-c", AGENT], stdout=subprocess.PIPE) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"seen\n"
            (child,) = map(int, Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split())
            if hangs:
                driver.hang("nvmlDeviceGetUtilizationRates")
                asked = driver.calls("nvmlDeviceGetUtilizationRates")
                until(lambda: driver.calls("nvmlDeviceGetUtilizationRates") > asked)
        finally:
            agent.send_signal(signal.SIGKILL)
    until(lambda: not alive(child))


def test_a_run_is_confined_to_the_nearest_cpus_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus.os, "sched_getaffinity", lambda _: {0, 1, 2, 5, 7})
    reading = machine(5)
    devices = provider(reading)
    assert devices.cpus([]) is None
    assert devices.cpus([0]) == {0, 1}
    assert devices.cpus([0, 1]) == {0, 1, 2}
    assert devices.cpus([4]) is None  # none of those near to it is ours: 8 and 9
    unknown = reading.model_copy(update={"gpus": (reading.gpus[0], reading.gpus[1].model_copy(update={"cpus": ()}))})
    assert provider(unknown).cpus([0, 1]) is None
    assert provider(unknown).cpus([0]) == {0, 1}


def test_a_run_sees_its_devices_by_uuid_and_no_others() -> None:
    devices = provider(machine(3))
    uuids = "GPU-2,GPU-0"
    assert devices.environment([2, 0]) == {
        "CUDA_VISIBLE_DEVICES": uuids,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": uuids,
    }
    assert devices.environment([])["CUDA_VISIBLE_DEVICES"] == ""
    for ask in (devices.environment, devices.cpus):
        with pytest.raises(UnknownDevice, match="no device 3; its devices are 0, 1, 2"):
            ask([0, 3])


def test_the_shim_counts(plug_in: PlugIn) -> None:
    driver: Shim = plug_in(machine(1))
    assert driver.calls("nvmlInitWithFlags") == 0
    with polling() as seen:
        next(seen)
    assert driver.calls("nvmlInitWithFlags") == 1
