"""Runs that execute on one GPU at the same time: what they find in their environment, MPS, and the one that takes too much."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb

from node_agent.devices.mps import MpsDaemons
from node_agent.measuring.device_memory import CONTEXT_MIB, DeviceMemoryWatch
from node_agent.processes.process_groups import stat_fields
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.run_state.share_plan import SharePlan, ShareRow
from tests.agent.conftest import AgentProcess, _kill, alive, of_state, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler, share_plan
from tests.nvml.conftest import PlugIn, library, plug_in  # noqa: F401 (fixtures)
from tests.nvml.shim import Shim
from tests.nvml.test_machines import load

Start = Callable[..., AgentProcess]
MACHINE = Path(__file__).parents[1] / "nvml" / "machines" / "pcie-8.json"
ONE, TWO = RunKey(1, 1), RunKey(2, 1)
WAITS = "env >variables.new; mv variables.new variables; exec sleep 1000"


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory with a short path, for sockets. Nothing of it is left behind."""
    path = tmp_path_factory.mktemp("m") / "s"
    yield path
    for file in path.glob("mps/*/pipe/*.pid"):
        os.kill(int(file.read_text()), signal.SIGKILL)
    until(lambda: not [_kill(pid) for pid in of_state(path)])


@pytest.fixture
def shim(plug_in: PlugIn) -> Shim:  # noqa: F811
    return plug_in(load(MACHINE)[0])


@pytest.fixture
def fake_mps(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a fake control program on the PATH of agents; what goes wrong with it is in this file."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(f"#!{sys.executable} -S\n{Path(__file__).with_name('fake_mps_control.py').read_text()}")
    program.chmod(0o755)
    plan = tmp_path / "plan"
    plan.write_text("")
    monkeypatch.setenv("EBB_FAKE_MPS", str(plan))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return plan


def packed(limit: int) -> pb.SharePlan:
    plan = share_plan((1, 2), period=60.0)
    plan.device_memory_mib = limit
    return plan


def variables(state: Path, job: int) -> dict[str, str]:
    file = run_directory(state, job) / "variables"
    until(file.exists)
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)


def test_the_run_that_takes_more_than_its_part_is_killed(
    agent: Start, scheduler: FakeScheduler, state: Path, shim: Shim
) -> None:
    agent(devices="nvml")
    uuid = scheduler.connected().devices[0].uuid
    for job in (1, 2):
        scheduler.start(job, "/bin/sh", "-c", WAITS, devices=(0,), share=packed(10_000))
    pids = {job: scheduler.started(job).pid for job in (1, 2)}
    given = variables(state, 1)
    assert (given["EBB_DEVICE_MEMORY_LIMIT_MIB"], given["EBB_DEVICE_MEMORY_MIB"]) == ("10000", "10000")
    assert given["CUDA_VISIBLE_DEVICES"] == uuid
    assert not [name for name in given if "MPS" in name]
    shim.processes(0, {pids[1]: 10_000 + CONTEXT_MIB, pids[2]: 16_000})
    exited = scheduler.exited(2)
    assert (exited.exit_signal, exited.out_of_memory, exited.told) == (signal.SIGKILL, True, False)
    assert exited.out_of_device_memory == "it uses 16000 MiB of device 0, which it shares, and may use 10000 MiB"
    log = (run_directory(state, 2) / "output.log").read_text()
    assert "ebb: killed: out of device memory: it uses 16000 MiB of device 0, which it shares, and may use 10000 MiB" in log
    assert alive(pids[1]), "the other one keeps to its limit, and its context does not count"


def test_runs_that_are_packed_have_a_daemon_where_the_settings_say_so(
    agent: Start, scheduler: FakeScheduler, state: Path, shim: Shim, fake_mps: Path
) -> None:
    assert shim
    assert fake_mps.exists()
    first = agent("--mps", "packed", devices="nvml")
    uuid = scheduler.connected().devices[0].uuid
    scheduler.start(3, "/bin/sh", "-c", WAITS, devices=(1,))
    for job in (1, 2):
        scheduler.start(job, "/bin/sh", "-c", WAITS, devices=(0,), share=packed(10_000))
    for job in (1, 2):
        scheduler.started(job)
        given = variables(state, job)
        assert given["CUDA_MPS_PIPE_DIRECTORY"] == f"{state}/mps/{os.geteuid()}-{uuid}/pipe"
        assert given["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10000M"
    scheduler.started(3)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in variables(state, 3), "a run that has its device alone has no use for it"
    (file,) = state.glob("mps/*/pipe/*.pid")
    daemon = int(file.read_text())
    first.kill()
    agent("--mps", "packed", devices="nvml")
    scheduler.connected(2)
    scheduler.stop(1, 0)
    scheduler.exited(1)
    assert stat_fields(daemon), "the other one is still its client"
    scheduler.stop(2, 0)
    scheduler.exited(2)
    until(lambda: not MpsDaemons(state / "mps").find_started())
    assert stat_fields(daemon)[:1] in ([], ["Z"])


def test_the_first_run_of_a_device_is_a_client_before_there_is_another(
    agent: Start, scheduler: FakeScheduler, state: Path, shim: Shim, fake_mps: Path
) -> None:
    assert shim
    assert fake_mps.exists()
    agent("--mps", "packed", devices="nvml")
    uuid = scheduler.connected().devices[0].uuid
    plan = share_plan((1,), period=60.0)
    plan.packed = True
    scheduler.start(1, "/bin/sh", "-c", WAITS, devices=(0,), share=plan)
    scheduler.started(1)
    assert variables(state, 1)["CUDA_MPS_PIPE_DIRECTORY"] == f"{state}/mps/{os.geteuid()}-{uuid}/pipe"


def test_without_a_daemon_runs_share_the_gpu_as_the_driver_lets_them(
    agent: Start, scheduler: FakeScheduler, state: Path, shim: Shim, fake_mps: Path
) -> None:
    assert shim
    fake_mps.write_text("refuse")
    made = agent("--mps", "packed", devices="nvml")
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", WAITS, devices=(0,), share=packed(10_000))
    scheduler.started(1)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in variables(state, 1)
    assert "run 1.1: starts without MPS: " in made.log.read_text()


def test_one_look_is_no_proof() -> None:
    plan = SharePlan(1, 1, (ShareRow((ONE, TWO)),), 60.0, (0,), device_memory_mib=1000)
    runs = {key: RunRecord(key, RunPhase.RUNNING, share=plan) for key in (ONE, TWO)}
    runs[RunKey(3, 1)] = RunRecord(RunKey(3, 1), RunPhase.RUNNING)
    told: list[tuple[RunKey, int, int, int]] = []
    watch = DeviceMemoryWatch(lambda: runs, lambda *seen: told.append(seen))
    most = 1000 + CONTEXT_MIB
    watch.check_limits({(ONE, 0): most + 1, (TWO, 0): most, (RunKey(3, 1), 0): 9999})
    watch.check_limits({(ONE, 0): most, (TWO, 0): most})
    watch.check_limits({(ONE, 0): most + 2})
    assert told == []
    watch.check_limits({(ONE, 0): most + 3})
    assert told == [(ONE, 0, most + 3, 1000)]
