"""The units: systemd takes them, and they keep the promises on which a restart without the loss of a job rests."""

import configparser
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from node_agent.commands.main import main as ebb_agent
from scheduler_service.commands.main import main as ebb_scheduler
from tests.deploy.guide import GUIDE

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = ("ebb-agent", "ebb-scheduler")
_ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(_ANALYZE is None, reason="systemd-analyze is not installed")

_MAKES_A_MOUNT_NAMESPACE = re.compile(
    r"Private(Tmp|Devices|Mounts|Users|IPC)|Protect(System|Home|Kernel\w+|ControlGroups|Proc)|ProcSubset|\w+Paths|TemporaryFileSystem"
    r"|Root(Directory|Image)|DynamicUser|MountAPIVFS"
)
_TAKES_DEVICES_AWAY = ("DeviceAllow", "DevicePolicy", "PrivateDevices", "ProtectClock")
_REMOVED_AT_A_STOP = ("RuntimeDirectory", "PrivateTmp", "RemoveIPC", "DynamicUser")


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """Section -> directive -> its values, in the order in which they stand there."""
    section, found = "", defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    for line in (FOLDER / f"{name}.service").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            directive, _, value = line.partition("=")
            found[section][directive].append(value)
    return found


def version() -> int:
    said = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[1])


@needs_systemd
@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_it(name: str, tmp_path: Path) -> None:
    """As it stands, but for the place of the program, which has to be there."""
    copy = tmp_path / f"{name}.service"
    text = (FOLDER / copy.name).read_text()
    assert "/opt/ebb/bin" in text
    copy.write_text(text.replace("/opt/ebb/bin/" + name, sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False, timeout=60)
    said = [line for line in done.stderr.splitlines() if copy.name in line]  # of other units of this machine it may say more
    if version() < 254:
        said = [line for line in said if not re.search("Unknown key .*'DelegateSubgroup'.* ignoring", line)]
    assert said == []


@needs_systemd
def test_how_far_they_are_shut_in(tmp_path: Path) -> None:
    """By systemd's own count, where 10 is a service without any. The agent's jobs could not live in the scheduler's."""

    def exposure(name: str) -> float:
        command = ["systemd-analyze", "security", "--offline=true", "--no-pager", FOLDER / f"{name}.service"]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        return float(re.search(r"exposure level for \S+: ([0-9.]+)", said)[1])  # type: ignore[index]

    assert exposure("ebb-scheduler") <= 1.5
    assert exposure("ebb-agent") <= 6.5


def test_a_restart_of_the_agent_kills_no_job() -> None:
    service = unit("ebb-agent")["Service"]
    assert (service["KillMode"], service["Delegate"], service["OOMPolicy"]) == (["process"], ["yes"], ["continue"])
    assert service["DelegateSubgroup"] == ["agent"], "as node_agent.processes.cgroups names it"
    assert [each for each in service if _MAKES_A_MOUNT_NAMESPACE.fullmatch(each)] == []
    assert [each for each in unit("ebb-scheduler")["Service"] if _MAKES_A_MOUNT_NAMESPACE.fullmatch(each)], "that one may"
    assert not {*_TAKES_DEVICES_AWAY, *_REMOVED_AT_A_STOP} & set(service)


@pytest.mark.parametrize("name", UNITS)
def test_what_both_say(name: str) -> None:
    sections = unit(name)
    service = sections["Service"]
    assert service["Type"] == ["notify"]
    assert service["EnvironmentFile"] == [f"-/etc/default/{name}"]
    assert (FOLDER / f"{name}.default").exists()
    assert (service["Restart"], service["RestartPreventExitStatus"]) == (["on-failure"], ["2"])
    assert sections["Unit"]["StartLimitIntervalSec"] == ["0"], "it never gives up"
    assert int(service["WatchdogSec"][0]) >= 30
    assert "network-online.target" in sections["Unit"]["After"][0]
    assert sections["Unit"]["Wants"] == ["network-online.target"]
    assert "Requires" not in sections["Unit"]
    (state,) = service["StateDirectory"]
    assert service["WorkingDirectory"] == [f"/var/lib/{state}"]
    assert service["User"] == service["Group"]


def test_jobs_are_not_the_schedulers_user() -> None:
    assert unit("ebb-agent")["Service"]["User"] != unit("ebb-scheduler")["Service"]["User"]


@pytest.mark.parametrize(("name", "command"), [("ebb-agent", ebb_agent), ("ebb-scheduler", ebb_scheduler)])
def test_the_command_is_there(name: str, command: object) -> None:
    program, verb, flag, file = unit(name)["Service"]["ExecStart"][0].split()
    assert program == f"/opt/ebb/bin/{name}"
    options = {option for parameter in command.commands[verb].params for option in parameter.opts}  # type: ignore[attr-defined]
    assert flag in options
    assert file in GUIDE.read_text()


@pytest.mark.parametrize("name", UNITS)
def test_what_may_be_set_in_etc_default(name: str) -> None:
    """The examples in it, taken in, are settings."""
    text = re.sub(r"^#(?=[A-Z])", "", (FOLDER / f"{name}.default").read_text(), flags=re.M)
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string("[all]\n" + text)
    names = [each.removeprefix(f"{name.upper().replace('-', '_')}_").lower() for each in parser["all"]]
    from node_agent.config import Settings
    from scheduler_service.config import Config

    known = {*Settings.model_fields, *Config.model_fields, "pgpassword"}
    assert names
    assert set(names) <= known
