"""What is seen of devices: whose it is, and how it gets to the scheduler."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import cluster_pb2
from google.protobuf.duration_pb2 import Duration

from node_agent.devices.base import (
    ActivityPeriod,
    ActivitySource,
    DeviceCycle,
    Inventory,
    Observation,
    Observed,
    ProcessMemory,
)
from node_agent.devices.simulated import simulate_devices
from node_agent.measuring import observations as observing
from node_agent.measuring.mini_batch import MiniBatch, MiniBatchSource
from node_agent.measuring.observations import Observations, Observing, RunCycle, owners
from node_agent.processes import run_members
from node_agent.processes.process_groups import stat_fields
from node_agent.run_state.events import Exited, Report
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.runs.spool_opening import open_spool
from node_agent.spool.spool import Spool
from node_agent.transport import link
from tests.agent.conftest import AgentProcess, until
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.test_link import QuietNode
from tests.nvml.conftest import PlugIn, library, plug_in  # noqa: F401  (fixtures)
from tests.nvml.test_machines import load

KEY = RunKey(7, 2)
MACHINE = Path(__file__).parents[1] / "nvml" / "machines" / "hgx-h100.json"
LIMIT = 20.0

_CHILD = "import os, sys, time; {} print(os.getpid(), flush=True); time.sleep(600)"
_AS = {
    "the leader itself": "",
    "a child": "os.fork() and time.sleep(600);",
    "a child in a group of its own": "os.fork() and time.sleep(600); os.setpgid(0, 0);",
    "a grandchild in a session of its own": "os.fork() and time.sleep(600); os.setsid(); os.fork() and time.sleep(600);",
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[int, int]]]:
    """Starts what a launcher would for a run; the pids of its leader, and of the process that uses the device."""
    begun: list[tuple[int, int]] = []

    def start(how: str, directory: str = "") -> tuple[int, int]:
        environment = os.environ | ({"EBB_RUN_DIR": directory} if directory else {})
        command = [sys.executable, "-S", "-c", _CHILD.format(_AS[how])]
        leader = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True)
        assert leader.stdout is not None
        with leader.stdout:
            begun.append((leader.pid, int(leader.stdout.readline())))
        processes.append(leader)
        return begun[-1]

    processes: list[subprocess.Popen[bytes]] = []
    yield start
    for leader, pid in begun:
        for group in {leader, os.getpgid(pid)}:
            os.killpg(group, signal.SIGKILL)
    for process in processes:
        process.wait()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = open_spool(tmp_path / "spool.db")
    yield spool
    spool.close()


def runs(spool: Spool, leaders: Mapping[int, RunKey]) -> None:
    spool.remember([RunRecord(key, RunPhase.RUNNING, pid=pid, start_ticks=1) for pid, key in leaders.items()])


class Told:
    """A provider that sees what it is told."""

    def __init__(self) -> None:
        self.inventory = Inventory(1000, 1024)
        self._told: asyncio.Queue[Observed | None] = asyncio.Queue()
        self.taken = asyncio.Event()

    def cpus(self, indices: Sequence[int]) -> None:
        raise AssertionError(indices)

    def environment(self, indices: Sequence[int]) -> Mapping[str, str]:
        raise AssertionError(indices)

    async def tell(self, observed: Observed) -> None:
        """Until it was taken in."""
        self.taken.clear()
        self._told.put_nowait(observed)
        async with asyncio.timeout(LIMIT):
            await self.taken.wait()

    async def observe(self) -> AsyncIterator[Observed]:
        while (told := await self._told.get()) is not None:
            yield told
            self.taken.set()


class Urgent:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@asynccontextmanager
async def watching(spool: Spool, state: Path) -> AsyncIterator[tuple[Told, Observing, Urgent]]:
    provider, urgent = Told(), Urgent()
    made = Observing(provider, spool, state, urgent)
    task = asyncio.create_task(made.run())
    try:
        yield provider, made, urgent
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


def seen(*faults: str, processes: Sequence[ProcessMemory] = (), cycles: Sequence[DeviceCycle] = ()) -> Observed:
    devices = tuple(Observation(index, 100, 50, fault) for index, fault in enumerate(faults or ("", "")))
    return Observed(devices, tuple(processes), tuple(cycles))


# ---- whose process it is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", sorted(_AS))
def test_whose_a_process_is(how: str, start: Callable[..., tuple[int, int]], tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "ab12" / "7.2"
    leader, pid = start(how, str(folder))
    assert owners([pid], {leader: KEY}, tmp_path, "ab12") == {pid: KEY}


def test_strangers(start: Callable[..., tuple[int, int]], tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "ab12" / "7.2"
    leader, _ = start("the leader itself")
    _, stranger = start("the leader itself")
    _, of_another_spool = start("the leader itself", str(folder.parents[1] / "cd34" / "7.2"))
    _, of_another_run = start("the leader itself", str(folder.with_name("7.3")))
    _, nonsense = start("the leader itself", str(folder.with_name("x.1.2.3.4")))
    gone = subprocess.Popen(["true"])
    gone.wait()
    pids = [stranger, of_another_spool, of_another_run, nonsense, gone.pid, os.getpid(), 1, 0]
    assert owners(pids, {leader: KEY}, tmp_path, "ab12") == dict.fromkeys(pids)


def test_the_control_group_tells_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of what has left its session and cleared its environment."""

    def read(path: str) -> bytes:
        assert path == f"/proc/{os.getpid()}/cgroup"
        return b"0::/system.slice/ebb-agent.service/runs/ab12.7.2/inner\n"

    monkeypatch.setattr(run_members, "read", read)
    assert owners([os.getpid()], {1 << 22: KEY}, tmp_path, "ab12") == {os.getpid(): KEY}
    assert owners([os.getpid()], {1 << 22: RunKey(7, 3)}, tmp_path, "ab12") == {os.getpid(): None}


# ---- what is made of it ------------------------------------------------------------------------------------------------


async def test_memory_of_runs(spool: Spool, tmp_path: Path, start: Callable[..., tuple[int, int]]) -> None:
    leader, child = start("a child in a group of its own")
    other, _ = start("the leader itself")
    runs(spool, {leader: KEY, other: RunKey(8, 1, 3)})
    processes = [
        ProcessMemory(child, 0, 900),
        ProcessMemory(child, 1, 30),
        ProcessMemory(leader, 1, 20),  # with its child: no wave
        ProcessMemory(other, 1, 500),
        ProcessMemory(os.getpid(), 1, 4000),  # a stranger
    ]
    cycles = [DeviceCycle(child, 0, 1.5, 300, 900, 0.9), DeviceCycle(os.getpid(), 1, 1.0, 1, 2, 0.8)]
    async with watching(spool, tmp_path) as (provider, made, urgent):
        assert made.latest is None
        observed = seen(processes=processes, cycles=cycles)
        before = time.monotonic()
        await provider.tell(observed)
        assert made.latest is not None
        assert made.latest.devices == observed.devices
        assert made.latest.cycles == (
            RunCycle(KEY, 0, 1.5, 300, 900, 0.9),
            RunCycle(KEY, 1, None, 50, 50, 0.0),
            RunCycle(RunKey(8, 1, 3), 1, None, 500, 500, 0.0),
        )
        assert urgent.calls == 1
        assert made.memory_of(KEY) == made.memory_of(KEY, before) == {child: 930, leader: 20}
        now = time.monotonic()
        assert made.memory_of(KEY, now) is None, "no look has begun since"
        await provider.tell(replace(observed, began=now - 1.0))
        assert made.memory_of(KEY, now) is None, "the look was under way already"
        await provider.tell(replace(observed, began=now))
        assert made.memory_of(KEY, now) == {child: 930, leader: 20}


async def test_the_mini_batches_of_runs(spool: Spool, tmp_path: Path, start: Callable[..., tuple[int, int]]) -> None:
    leader, child = start("a child in a group of its own")
    other, _ = start("the leader itself")
    runs(spool, {leader: KEY, other: RunKey(8, 1, 3)})
    processes = [ProcessMemory(pid, index, 900) for index, pid in enumerate((child, child, other))]
    cycles = [DeviceCycle(child, 0, 1.5, 300, 900, 0.7), DeviceCycle(child, 1, 1.52, 300, 900, 0.9)]
    cycles.append(DeviceCycle(other, 2, None, 900, 900, 0.0))
    activity = [ActivityPeriod(pid, 2, 0.8, 0.6, ActivitySource.POWER) for pid in (other, os.getpid())]
    async with watching(spool, tmp_path) as (provider, made, _):
        await provider.tell(replace(seen(processes=processes, cycles=cycles), activity=tuple(activity)))
        assert made.latest is not None
        assert made.latest.mini_batches == (
            MiniBatch(KEY, 1.52, 0.9, MiniBatchSource.MEMORY),
            MiniBatch(RunKey(8, 1, 3), 0.8, 0.6, MiniBatchSource.POWER),
        )


async def test_processes_are_asked_about_once(
    spool: Spool, tmp_path: Path, start: Callable[..., tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def fields(pid: int) -> list[str]:
        asked.append(pid)
        return stat_fields(pid)

    monkeypatch.setattr(run_members, "stat_fields", fields)
    leader, _ = start("the leader itself")
    runs(spool, {leader: KEY})
    told = seen(processes=[ProcessMemory(leader, 0, 900), ProcessMemory(os.getpid(), 1, 5)])
    async with watching(spool, tmp_path) as (provider, made, _):
        await provider.tell(told)
        first = list(asked)
        assert leader in first
        assert os.getpid() in first
        await provider.tell(told)
        assert asked == first
        runs(spool, {os.getpid(): RunKey(9, 1)})  # it was a stranger until now
        await provider.tell(told)
        assert made.latest is not None
        assert [cycle.key for cycle in made.latest.cycles] == [KEY, RunKey(9, 1)]
        await provider.tell(seen())
        assert made.latest.cycles == ()


async def test_a_process_that_hangs_keeps_no_fault_back(spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, asked = threading.Event(), []

    def hangs(pid: int, _state: Path) -> str:
        asked.append(pid)
        release.wait(60)
        return ""

    monkeypatch.setattr(observing, "run_of", hangs)
    monkeypatch.setattr(observing, "_PATIENCE", 0.05)
    stranger = seen("", "XID 79", processes=[ProcessMemory(os.getpid(), 1, 5)])
    async with watching(spool, tmp_path) as (provider, made, _):
        for _ in range(2):
            async with asyncio.timeout(20):
                await provider.tell(stranger)
        assert made.latest is not None
        assert (made.latest.faults, made.latest.cycles) == (((1, "XID 79"),), ())
        assert asked == [os.getpid()]  # not by a second thread, while the first hangs
        release.set()


async def test_the_log_tells_of_each_fault_once(spool: Spool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "node_agent")
    async with watching(spool, tmp_path) as (provider, _made, _urgent):
        for faults in (("", ""), ("", "XID 79"), ("", "XID 79"), ("hot", "XID 48"), ("hot", "")):
            await provider.tell(seen(*faults))
    assert caplog.messages == [
        "device 1 is faulty, and gets nothing new: XID 79",
        "device 0 is faulty, and gets nothing new: hot",
        "device 1 is faulty, and gets nothing new: XID 48",
        "device 1 is well again",
    ]


async def test_only_other_faults_are_urgent(spool: Spool, tmp_path: Path) -> None:
    async with watching(spool, tmp_path) as (provider, made, urgent):
        for faults, calls in [
            (("", ""), 1),
            (("", ""), 1),
            (("", "XID 79"), 2),
            (("", "XID 79"), 2),
            (("", "XID 48"), 3),
            (("", ""), 4),
        ]:
            await provider.tell(seen(*faults))
            assert urgent.calls == calls
            assert made.latest is not None
            assert made.latest.faults == tuple((index, why) for index, why in enumerate(faults) if why)


async def test_where_nothing_is_to_be_seen_it_ends(spool: Spool, tmp_path: Path) -> None:
    made = Observing(simulate_devices("pcie-8", "n1"), spool, tmp_path, Urgent())
    async with asyncio.timeout(LIMIT):
        await made.run()
    assert made.latest is None


async def test_it_waits_until_the_devices_were_looked_at_once_more(spool: Spool, tmp_path: Path) -> None:
    async with watching(spool, tmp_path) as (provider, made, _):
        await asyncio.wait_for(made.once_more(), LIMIT)  # nothing was seen of any: there is nothing to wait for
        await provider.tell(seen())
        waiting = asyncio.create_task(made.once_more())
        await asyncio.sleep(0)
        assert not waiting.done()
        await provider.tell(seen("", "XID 79"))
        await asyncio.wait_for(waiting, LIMIT)
        assert made.latest is not None
        assert made.latest.faults == ((1, "XID 79"),)


@pytest.mark.parametrize(
    ("ended", "told", "failed"),
    [
        (Exited(code=1), False, True),
        (Exited(signal=9), False, True),
        (Exited(unknown=True), False, True),
        (Exited(), False, False),
        (Exited(yielded=True, code=1), False, False),
        (Exited(code=143), True, False),
    ],
)
def test_a_run_that_was_told_to_stop_or_went_well_needs_no_look(spool: Spool, ended: Exited, told: bool, failed: bool) -> None:
    """A trial may wait for its room."""
    spool.report(RunRecord(KEY, RunPhase.ENDED, stop_received=1.0 if told else None), ended)
    assert [spool.is_failure(report) for report in spool.pending()] == [failed]


# ---- to the scheduler --------------------------------------------------------------------------------------------------


class Seeing(QuietNode):
    """A node with devices that can be seen."""

    def __init__(self, latest: Observations | None) -> None:
        super().__init__()
        self.latest = latest

    def observations(self) -> Observations | None:  # type: ignore[override]
        return self.latest

    def see(self, latest: Observations) -> None:
        """As `Observing` tells it of a fault."""
        self.latest = latest
        self.reported.set()


def observations(used: int, fault: str = "", *cycles: RunCycle) -> Observations:
    return Observations((Observation(0, used, 50), Observation(1, None, None, fault)), cycles)


@asynccontextmanager
async def connected(scheduler: FakeScheduler, node: Seeing) -> AsyncIterator[None]:
    task = asyncio.create_task(link.run(scheduler.address, node))  # type: ignore[arg-type]
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def told(scheduler: FakeScheduler, what: Callable[[], bool]) -> None:
    await asyncio.to_thread(scheduler.wait, what)


async def test_what_is_sent(scheduler: FakeScheduler) -> None:
    cycles = (RunCycle(KEY, 0, 1.25, 300, 900, 0.875), RunCycle(RunKey(8, 1, 3), 1, None, 5, 6, 0.0))
    async with connected(scheduler, Seeing(observations(77, "f" * 300, *cycles))):
        await told(scheduler, lambda: bool(scheduler.observations))
    sent = scheduler.observations[0]
    assert sent == pb.Observations(
        devices=[
            cluster_pb2.DeviceObservation(index=0, memory_used_mib=77, utilisation_percent=50),
            cluster_pb2.DeviceObservation(index=1, fault="f" * 256),
        ],
        cycles=[
            cluster_pb2.MemoryCycle(
                job_id=7,
                run=2,
                device=0,
                minimum_mib=300,
                maximum_mib=900,
                confidence=0.875,
                source=cluster_pb2.MEMORY_SOURCE_NVML,
                period=Duration(seconds=1, nanos=250_000_000),
            ),
            cluster_pb2.MemoryCycle(
                job_id=8, run=1, task=3, device=1, minimum_mib=5, maximum_mib=6, source=cluster_pb2.MEMORY_SOURCE_NVML
            ),
        ],
    )


async def test_it_takes_the_place_of_the_heartbeat(scheduler: FakeScheduler) -> None:
    scheduler.heartbeat = 0.05
    node = Seeing(observations(1))
    async with connected(scheduler, node):
        await told(scheduler, lambda: len(scheduler.observations) >= 3)
        node.latest = observations(2)
        await told(scheduler, lambda: scheduler.observations[-1].devices[0].memory_used_mib == 2)
        assert scheduler.heartbeats == 0
        node.latest = None
        await told(scheduler, lambda: scheduler.heartbeats >= 2)


async def test_a_fault_is_told_at_once_and_all_is_told_anew_after_a_welcome(scheduler: FakeScheduler) -> None:
    scheduler.heartbeat = 3600.0
    node = Seeing(observations(1))
    async with connected(scheduler, node):
        await told(scheduler, lambda: len(scheduler.observations) == 1)
        node.see(observations(2, "XID 79"))
        await told(scheduler, lambda: len(scheduler.observations) == 2)
        assert scheduler.observations[1].devices[1].fault == "XID 79"
        node.see(observations(3, "XID 79"))  # something else woke the link: that is no news
        node.see(observations(4))
        await told(scheduler, lambda: len(scheduler.observations) >= 3)
        assert [o.devices[0].memory_used_mib for o in scheduler.observations] == [1, 2, 4]
        scheduler.hang_up()
        await told(scheduler, lambda: len(scheduler.hellos) == 2 and len(scheduler.observations) == 4)
        assert scheduler.observations[3].devices[0].memory_used_mib == 4


def test_from_the_driver_to_the_scheduler(
    scheduler: FakeScheduler,
    agent: Callable[..., AgentProcess],
    plug_in: PlugIn,  # noqa: F811
) -> None:
    """A real agent, and the processes that it has: a run's wave, and a GPU that is lost."""
    reading, _ = load(MACHINE)
    driver = plug_in(reading)
    agent("--reserve-memory", "0", devices="nvml")
    scheduler.connected()
    scheduler.start(7, "sh", "-c", "sleep 600 & wait", run=2, devices=(3,))
    leader = scheduler.started(7, 2).pid
    (child,) = until(lambda: [int(pid) for pid in Path(f"/proc/{leader}/task/{leader}/children").read_text().split()])
    driver.processes(3, {child: None})
    driver.utilisation(3, 80)
    driver.wave(3, 1.5, 900, 40_000)

    scheduler.wait(lambda: [c for seen in scheduler.observations[-1:] for c in seen.cycles if c.HasField("period")], 120)
    seen = scheduler.observations[-1]
    (cycle,) = seen.cycles
    assert (cycle.job_id, cycle.run, cycle.device, cycle.source) == (7, 2, 3, cluster_pb2.MEMORY_SOURCE_NVML)
    assert cycle.period.ToTimedelta().total_seconds() == pytest.approx(1.5, rel=0.05)
    assert 900 <= cycle.minimum_mib < 8000 < 32_000 < cycle.maximum_mib <= 40_000
    assert cycle.confidence > 0.6
    assert [device.index for device in seen.devices] == list(range(8))
    assert seen.devices[3].utilisation_percent == 80
    assert {device.fault for device in seen.devices} == {""}
    driver.xid(5, 79)
    scheduler.wait(lambda: "79" in scheduler.observations[-1].devices[5].fault)
    scheduler.hang_up()
    hello = scheduler.connected(2)  # so that nothing is placed there in between
    assert ["79" in device.fault for device in hello.devices] == [index == 5 for index in range(8)]


class SlowCall:
    """A stream that takes nothing, until it is let."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.let = asyncio.Semaphore(0)

    async def write(self, message: bytes) -> None:
        await self.let.acquire()
        self.written.append(message)


async def test_behind_a_slow_scheduler_only_the_newest_waits() -> None:
    call, node = SlowCall(), Seeing(observations(0, "fault 0"))
    sending = asyncio.create_task(link._send(call, node, 3600.0))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    for count in range(1, 50):
        node.see(observations(count, f"fault {count}"))
        await asyncio.sleep(0)
    for _ in range(2):
        call.let.release()
    async with asyncio.timeout(LIMIT):
        while len(call.written) < 2:
            await asyncio.sleep(0)
    sent = [pb.ConnectRequest.FromString(message).observations for message in call.written]
    assert [seen.devices[0].memory_used_mib for seen in sent] == [0, 49]
    sending.cancel()
    await asyncio.wait([sending])


async def test_the_fault_of_a_device_goes_before_the_end_of_the_run_that_it_broke(scheduler: FakeScheduler) -> None:
    """Else the job would fail for good: it would have failed by itself, on devices that were well."""

    class Broken(Seeing):
        def pending(self, after: int) -> list[object]:
            return [Report(1, KEY, Exited(signal=9))] if after < 1 else []

        async def recheck_devices(self, reports: object) -> None:
            if reports:
                self.latest = observations(1, "XID 79")

    async with connected(scheduler, Broken(observations(1))):
        await told(scheduler, lambda: bool(scheduler.reports))
    assert [device.fault for device in scheduler.observations[0].devices] == ["", "XID 79"]
