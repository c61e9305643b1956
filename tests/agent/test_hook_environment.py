"""The environment of a run: where Python finds the hook, how that is switched off, and that Python does not buffer output."""

from pathlib import Path

import pytest

import ebb_inject
from node_agent.config import load
from node_agent.devices.base import Inventory
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import LaunchSpec, RunKey
from node_agent.runs.environment import environment

HOOK = "/opt/ebb/inject"


def found(hook: str = HOOK, inherited: tuple[tuple[str, str], ...] = (), **theirs: str) -> dict[str, str]:
    launch = LaunchSpec(
        RunKey(1, 1),
        command=("true",),
        environment=tuple(theirs.items()),
        inherited=inherited,
        working_directory="/",
        name="",
        user="u",
        devices=(),
    )
    paths = Paths(Path("/s"), Path("/c"), "x", hook)
    return environment({"PATH": "/bin"}, launch, "n", paths, "/c/1", Inventory(1000, 1024), {})


def test_python_finds_the_hook_behind_what_the_user_has() -> None:
    assert found()["PYTHONPATH"] == HOOK
    assert found(PYTHONPATH="")["PYTHONPATH"] == HOOK
    assert found(PYTHONPATH="/a:/b")["PYTHONPATH"] == f"/a:/b:{HOOK}"
    assert found(inherited=(("PYTHONPATH", "/i"),))["PYTHONPATH"] == f"/i:{HOOK}"
    assert found(inherited=(("PYTHONPATH", "/i"),), PYTHONPATH="/a")["PYTHONPATH"] == f"/a:{HOOK}"
    assert found()["EBB_PARK_DIR"] == "/s/runs/x/1.1/park" == f"{found()['EBB_RUN_DIR']}/park"


@pytest.mark.parametrize("off", [{"NO_EBB_HOOK": "1"}, {"hook": ""}])
def test_switched_off(off: dict[str, str]) -> None:
    assert "EBB_PARK_DIR" not in found(**off)
    assert "PYTHONPATH" not in found(**off)
    assert found(**off, PYTHONPATH="/a")["PYTHONPATH"] == "/a"


def test_steps_to_skip_are_said_if_there_are_any() -> None:
    launch = LaunchSpec(RunKey(1, 2), command=("true",), skip_steps=5000)
    told = environment({}, launch, "n", Paths(Path("/s"), Path("/c"), "x"), "/c/1", Inventory(1000, 1024), {})
    assert told["EBB_SKIP_STEPS"] == "5000"
    assert "EBB_SKIP_STEPS" not in found()


@pytest.mark.parametrize(
    ("inherited", "own", "value"),
    [
        ((), {}, "1"),
        ((), {"PYTHONUNBUFFERED": ""}, ""),
        ((("PYTHONUNBUFFERED", "0"),), {}, "0"),
        ((("PYTHONUNBUFFERED", "0"),), {"PYTHONUNBUFFERED": "x"}, "x"),
    ],
)
def test_python_does_not_buffer_its_output_unless_the_job_or_its_submitter_says_so(
    inherited: tuple[tuple[str, str], ...], own: dict[str, str], value: str
) -> None:
    assert found(inherited=inherited, **own)["PYTHONUNBUFFERED"] == value
    assert found("", inherited, **own)["PYTHONUNBUFFERED"] == value, "also without the hook"


def test_paths_of_another_spool_keep_the_hook() -> None:
    assert Paths(Path("/s"), Path("/c"), "x", HOOK).paths_of_spool("y").hook == HOOK


@pytest.mark.parametrize(("said", "meant"), [("", "on"), ("hook: on", "on"), ("hook: off", "off"), ('hook: "off"', "off")])
def test_the_setting_of_an_agent(said: str, meant: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(f"scheduler: localhost:1\nstate: /s\ndevices: pcie-8\n{said}\n")
    assert load({}, file).hook == meant


def test_the_folder_is_what_pytorch_looks_for() -> None:
    (entry,) = Path(ebb_inject.FOLDER).glob("*.dist-info/entry_points.txt")
    assert entry.read_text().split() == ["[torch.backends]", "ebb_hook", "=", "ebb_hook.autoload:install"]
