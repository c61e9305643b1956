"""The command line, the settings, and the simulated devices."""

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from node_agent import app
from node_agent.commands.main import main
from node_agent.config import BadSettings, Settings, load, load_devices
from node_agent.devices.simulated import PROFILES, simulate_devices
from node_agent.errors import FolderUnusable, StateUnusable, UnknownDevice
from node_agent.runs.rendezvous import address_towards

FLAGS = {"scheduler": "127.0.0.1:7070", "devices": "pcie-8", "state": "s", "node": "n"}


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("node: from-file\ndevices: cpu-20c\nscheduler: localhost:1\nstate: /s\n")
    settings = load({}, file)
    assert (settings.node, settings.devices, settings.scheduler) == ("from-file", "cpu-20c", "localhost:1")
    monkeypatch.setenv("EBB_AGENT_NODE", "from-env")
    monkeypatch.setenv("EBB_AGENT_DEVICES", "pcie-8")
    settings = load({"devices": "dgx-a100", "node": None}, file)
    assert (settings.node, settings.devices) == ("from-env", "dgx-a100")
    assert settings.state == Path("/s")
    assert settings.checkpoint_root == Path("/s/checkpoints")
    assert load(FLAGS | {"checkpoints": "/c"}).checkpoint_root == Path("/c")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scheduler": None}, "--scheduler is missing; give the flag, EBB_AGENT_SCHEDULER, or scheduler: in the file"),
        ({"scheduler": "127.0.0.1"}, "'127.0.0.1' is not HOST:PORT"),
        ({"keep_stored": "30"}, "keep_stored: 30 goes with checkpoint_store: set it, or leave keep_stored out"),
        ({"scheduler": "127.0.0.1:0"}, "is not HOST:PORT"),
        ({"scheduler": "10.0.0.1:7070"}, "10.0.0.1:7070 is not this machine"),
        ({"devices": "abacus"}, "there is no profile 'abacus'; known: dgx-a100, pcie-8, pcie-2, cpu-20c"),
        ({"node": "a b"}, "is not a node name"),
        ({"log_level": "loud"}, "--log-level: Input should be 'debug', 'info', 'warning' or 'error'"),
        ({"address": "10.0.0.1:99"}, "--address: '10.0.0.1:99' is not the name or the address of a machine, without a port"),
        ({"address": ""}, "--address: '' is not the name"),
        ({"memory_limit": "some"}, "--memory-limit: Input should be 'enforce' or 'off'"),
        ({"launcher_idle": "soon"}, "--launcher-idle: Input should be a valid number"),
        ({"launcher_idle": "90000"}, "--launcher-idle: Input should be less than or equal to 86400; is '90000'"),
        ({"launcher_idle": True}, "--launcher-idle: it is true, and must not be a truth value"),
        ({"reserve_cpus": "1e22"}, "--reserve-cpus: Input should be less than or equal to 1000000000; is '1e22'"),
        ({"scheduler": "::1:53501"}, "--scheduler: '::1:53501' has an address of IPv6 without brackets: write [::1]:53501"),
        ({"state": ""}, "--state: it is empty: name a file or folder"),
        ({"checkpoints": ""}, "--checkpoints: it is empty: name a file or folder"),
    ],
)
def test_bad_values(change: dict[str, object], message: str) -> None:
    with pytest.raises(BadSettings) as error:
        load(FLAGS | change)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("setting", "wrong", "said"),
    [
        ("checkpoints", "file", "checkpoints: {folder}/file cannot be used as a folder: File exists"),
        ("checkpoints", "/proc", "checkpoints: /proc cannot be used as a folder: No such file"),
        ("checkpoints", "/proc/ebb", "checkpoints: /proc/ebb cannot be used as a folder: No such file"),
        ("state", "state", "state: {folder}/state/runs cannot be used as a folder: File exists"),
        ("state", "file", "{folder}/file cannot be used: File exists"),
        ("state", "/proc/ebb", "/proc/ebb cannot be used: No such file"),
    ],
)
async def test_a_folder_that_cannot_be_used_ends_the_agent_at_its_start(
    tmp_path: Path, setting: str, wrong: str, said: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "state").mkdir()
    if setting == "state":
        (tmp_path / "state" / "runs").touch()
    folders = {"state": tmp_path / "state", setting: tmp_path / wrong}
    settings = load(FLAGS | {name: str(path) for name, path in folders.items()} | {"allow_root": True})
    with pytest.raises((FolderUnusable, StateUnusable)) as error:
        await app.run(settings)
    assert said.format(folder=tmp_path) in " ".join(str(error.value).split())


@pytest.mark.parametrize("scheduler", ["localhost:1", "127.9.9.9:1", "[::1]:65535"])
def test_loopback_addresses(scheduler: str) -> None:
    assert load(FLAGS | {"scheduler": scheduler}).scheduler == scheduler


@pytest.mark.parametrize(
    ("scheduler", "address", "reached_at"),
    [
        ("127.0.0.1:1,127.0.0.2:1", None, "127.0.0.1"),
        ("localhost:1", "node-7.example.org", "node-7.example.org"),
        ("localhost:1", "fd00::7", "fd00::7"),
    ],
)
def test_where_other_nodes_reach_this_one(scheduler: str, address: str | None, reached_at: str) -> None:
    assert load(FLAGS | {"scheduler": scheduler, "address": address}).reachable_address() == reached_at


def test_the_address_on_the_way_to_a_scheduler() -> None:
    assert address_towards("127.0.0.9:7737") == "127.0.0.1"
    with pytest.raises(OSError, match="Name or service not known"):
        address_towards("no-such-host.invalid:7737")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: x\n", "nodes: there is no such setting"),
        ("{", "agent.yaml cannot be read as YAML"),
        ("state: /a\nnode: n\nstate: /b\n", "'state' is given twice"),
        ("1: a\n", "1: there is no such setting"),
        ("- a\n", "agent.yaml cannot be read as YAML with lines such as `devices: nvml`"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    with pytest.raises(BadSettings) as error:
        load(FLAGS, file)
    assert message in str(error.value)


def test_what_yaml_takes_for_a_truth_value(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("memory_limit: off\ncontrol_groups: off\n")
    settings = load(FLAGS, file)
    assert (settings.memory_limit, settings.control_groups) == ("off", "off")
    file.write_text("memory_limit: on\n")
    with pytest.raises(BadSettings, match="--memory-limit: Input should be 'enforce' or 'off'"):
        load(FLAGS, file)


def test_a_fault_of_the_agent_is_one_line_wherever_it_came_up(monkeypatch: pytest.MonkeyPatch) -> None:
    full = StateUnusable(path=Path("/s"), why="database or disk is full")

    async def fails(_: Settings) -> None:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [full])

    monkeypatch.setattr("node_agent.app.run", fails)
    done = CliRunner().invoke(main, ["run", *(f"--{name}={value}" for name, value in FLAGS.items() if value)])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, f"Error: {full}")


def test_the_command_line() -> None:
    result = CliRunner().invoke(main, ["run", "--scheduler", "10.0.0.1", "--devices", "x", "--state", "s"])
    assert result.exit_code == 2
    assert "'10.0.0.1' is not HOST:PORT" in result.output
    assert "there is no profile 'x'" in result.output
    result = CliRunner().invoke(main, ["run", "--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.output


def test_devices_are_the_same_at_every_start() -> None:
    first, second = simulate_devices("dgx-a100", "n1"), simulate_devices("dgx-a100", "n1")
    assert first.inventory == second.inventory
    uuids = {device.uuid for device in first.inventory.devices}
    assert len(uuids) == 8
    assert uuids.isdisjoint(device.uuid for device in simulate_devices("dgx-a100", "n2").inventory.devices)


def test_profiles() -> None:
    assert set(PROFILES) == {"dgx-a100", "pcie-8", "pcie-2", "cpu-20c"}
    assert [device.path for device in simulate_devices("pcie-2", "n").inventory.devices] == [(0,), (1,)]
    pcie, cpu = simulate_devices("pcie-8", "n").inventory, simulate_devices("cpu-20c", "n").inventory
    assert [device.path for device in pcie.devices] == [(0,)] * 4 + [(1,)] * 4
    assert (cpu.cpu_milli, cpu.levels, cpu.devices) == (20_000, (), ())


def test_cpu_sets_are_disjoint_while_there_are_enough_cpus() -> None:
    many = simulate_devices("pcie-8", "n", host_cpus=range(20))
    sets = [many.cpus([index]) for index in range(8)]
    assert sorted(cpu for one in sets for cpu in one or ()) == list(range(20))
    assert many.cpus([0, 1]) == (sets[0] or frozenset()) | (sets[1] or frozenset())
    few = simulate_devices("pcie-8", "n", host_cpus=[4, 6])
    assert [few.cpus([index]) for index in range(3)] == [{4}, {6}, {4}]
    assert few.cpus([]) is None
    for index in (-1, 8):
        with pytest.raises(UnknownDevice, match=f"no device {index}; its devices are 0, 1, 2"):
            few.cpus([index])


def test_what_is_misspelt_in_the_environment_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_AGENT_CHECKPOINT", "/shared")
    monkeypatch.setenv("EBB_AGENT_SERVICE_HOST", "10.0.0.1")
    shown = CliRunner().invoke(main, ["run", "--devices", "abacus"])
    assert shown.exit_code == 2
    first = shown.stderr.splitlines()[0]
    assert first == "ebb-agent: EBB_AGENT_CHECKPOINT in the environment is no setting; EBB_AGENT_CHECKPOINTS is"


def test_simulated_devices_have_the_cpus_that_they_are_given() -> None:
    here = sorted(os.sched_getaffinity(0))
    text = ";".join([str(here[0])] * 4 + [f"{here[-1]}, {here[0]}"] * 4)
    for given in (text, text.split(";")):
        settings = load_devices({"devices": "dgx-a100", "cpus": given})
        assert settings.cpus == (frozenset({here[0]}),) * 4 + (frozenset({here[-1], here[0]}),) * 4
    made = simulate_devices("dgx-a100", "n", cpu_sets=settings.cpus)
    assert made.cpus((0, 3)) == {here[0]}
    assert made.cpus((0, 7)) == {here[0], here[-1]}


@pytest.mark.parametrize(
    ("devices", "cpus", "words"),
    [
        ("dgx-a100", "0;0", "cpus has 2 sets, and the profile dgx-a100 has 8 devices"),
        ("nvml", "0", "cpus goes with a simulated profile"),
        ("dgx-a100", "2-1", "'2-1' is not a set of CPUs"),
        ("dgx-a100", "4095", "CPU 4095 is not one of this machine's"),
    ],
)
def test_cpus_that_do_not_fit(devices: str, cpus: str, words: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(words)):
        load_devices({"devices": devices, "cpus": cpus})
