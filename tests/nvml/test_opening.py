"""The agent on a machine with GPUs: from the driver to what the scheduler is told."""
# ruff: noqa: F811 (fixtures of the agent's tests are asked for by their names)

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from node_agent.build_devices import GONE
from node_agent.devices.reading import Reading
from tests.agent.conftest import ROOT, AgentProcess, agent, run_directory, scheduler, state  # noqa: F401 (fixtures)
from tests.agent.fake_scheduler import FakeScheduler
from tests.nvml import shim as codes
from tests.nvml.conftest import PlugIn

AgentFixture = Callable[..., AgentProcess]


def machine(name: str) -> Reading:
    recorded = json.loads((Path(__file__).parent / "machines" / f"{name}.json").read_text())
    return Reading.model_validate(recorded["reading"])


def test_the_scheduler_is_told_of_the_gpus(
    plug_in: PlugIn,
    scheduler: FakeScheduler,
    agent: AgentFixture,
) -> None:
    plug_in(machine("dgx-1-v100"))
    process = agent("--reserve-memory", "0", "--reserve-cpus", "0.5", devices="nvml")
    hello = scheduler.connected()
    assert list(hello.levels) == ["socket", "switch"]
    assert [list(device.path) for device in hello.devices] == [[i // 4, i // 2 % 2] for i in range(8)]
    assert {(device.model, device.memory_mib, device.link_domain) for device in hello.devices} == {
        ("Tesla V100-SXM2-32GB", 32768, 0)
    }
    assert hello.capacity.memory_mib == psutil.virtual_memory().total >> 20
    assert hello.capacity.cpu_milli == len(os.sched_getaffinity(0)) * 1000 - 500
    log = process.log.read_text()
    assert re.search(r"INFO .*: node n1: 8 devices \(nvml\), state in ", log)
    assert len(re.findall(r"WARNING .*: devices: NVLink domain 0 is a mesh", log)) == 1
    loaded = Path(f"/proc/{process.process.pid}/maps").read_text()
    assert "libnvidia-ml" not in loaded  # it is other processes that ask the driver


@pytest.mark.long
def test_after_a_gpu_fell_off_the_agent_starts_with_the_same_inventory(
    plug_in: PlugIn,
    scheduler: FakeScheduler,
    agent: AgentFixture,
) -> None:
    shim = plug_in(machine("pcie-8"))
    first = agent(devices="nvml")
    before = scheduler.connected()
    first.kill()
    shim.lose(5)
    agent(devices="nvml")
    after = scheduler.connected(2)
    assert [device.fault for device in after.devices] == ["", "", "", "", "", GONE, "", ""]
    for device in after.devices:
        device.fault = ""
    assert (after.devices, after.levels, after.capacity) == (before.devices, before.levels, before.capacity)


@pytest.mark.long
def test_under_runs_the_agent_starts_with_the_same_inventory(
    plug_in: PlugIn, scheduler: FakeScheduler, agent: AgentFixture, state: Path
) -> None:
    """The scheduler refuses a node that has changed under its runs, and so would never hear how they ended."""
    shim = plug_in(machine("dgx-1-v100"))
    first = agent(devices="nvml")
    before = scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "until [ -e go ]; do sleep 0.02; done")
    scheduler.started(1)
    first.kill()
    shim.fail("nvmlDeviceGetNvLinkState", codes.UNKNOWN)
    second = agent(devices="nvml")
    assert scheduler.connected(2).devices == before.devices
    assert "so the node stays as it was when they were started" in second.log.read_text()
    second.kill()
    shim.fail("nvmlInitWithFlags", codes.DRIVER_NOT_LOADED)
    agent(devices="nvml")
    without = scheduler.connected(3)
    assert {device.fault for device in without.devices} == {
        "The GPUs of this node cannot be used: Driver Not Loaded. Load the kernel module (modprobe nvidia); dmesg says why it"
        " does not load."
    }
    for device in without.devices:
        device.fault = ""
    assert (without.devices, without.levels, without.capacity) == (before.devices, before.levels, before.capacity)
    (run_directory(state, 1) / "go").touch()
    scheduler.exited(1)
    shim.fail("nvmlInitWithFlags", 0)
    scheduler.wait(lambda: scheduler.observations and not any(one.fault for one in scheduler.observations[-1].devices))


def ebb_agent(*arguments: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(map(str, (ROOT, ROOT / "proto", ROOT / "third_party")))
    return subprocess.run(
        [sys.executable, "-m", "node_agent", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        timeout=60,
    )


def test_this_machine_is_shown_and_can_be_recorded(plug_in: PlugIn, tmp_path: Path) -> None:
    plug_in(machine("mig-even"))
    shown = ebb_agent("devices")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.match(r"28 devices, [\d.]+ CPUs, [\d.]+ GiB, driver 535\.161\.08\n├─ socket 0\n│  ├─ gpu 0\n", shown.stdout)
    recorded = tmp_path / "machine.json"
    recorded.write_text(ebb_agent("devices", "--reading").stdout)
    assert ebb_agent("devices", "--from", str(recorded)).stdout.splitlines()[1:] == shown.stdout.splitlines()[1:]


@pytest.mark.parametrize(
    ("command", "code"), [(["devices"], 3), (["run", "--devices", "nvml", "--scheduler", "127.0.0.1:1", "--allow-root"], 1)]
)
def test_without_a_driver_it_is_said_what_to_do(
    command: list[str], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("")  # also where this machine has a real one
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("EBB_AGENT_STATE", str(tmp_path / "state"))
    result = ebb_agent(*command)
    assert result.returncode == code
    assert result.stdout == ""
    assert result.stderr.startswith("Error: The GPUs of this node cannot be used: ")
    assert "Install the NVIDIA driver" in result.stderr
