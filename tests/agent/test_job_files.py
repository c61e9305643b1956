"""Obstacles that a job puts in place of files that agent and launcher open: nothing waits, and nothing elsewhere changes.

One launcher serves all cases.
"""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ebb_inject.ebb_hook import control
from node_agent.processes import exit_status, job_files, job_reports
from node_agent.processes.launcher.client import Ended, Event, Spawned, Unable
from node_agent.processes.launcher.spawn import EXIT_FILE, PROCESS_FILE, SAVERS_FILE, STOP_FILE, YIELD_FILE, may_save, savers_of
from node_agent.processes.run_paths import Paths
from node_agent.processes.stray_processes import process_of
from node_agent.run_state.model import RunKey
from node_agent.runs.warming import WarmFolder, read_modules
from node_agent.user_files.results import Results
from tests.agent.launching import Client, Play

KEY = RunKey(1, 1)
_LONGEST = 1.0
"""Seconds that an operation may take."""
_SECRET = "of another job"


def _make_socket(path: Path) -> None:
    at = os.open(path.parent, os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{at}/{path.name}")
    os.close(at)


def _make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _make_unreadable(path: Path) -> None:
    path.touch(mode=0)


OBSTACLES: dict[str, Callable[[Path, Path], None]] = {
    "FIFO": lambda path, _: os.mkfifo(path),
    "link to /dev/zero": lambda path, _: path.symlink_to("/dev/zero"),
    "link elsewhere": lambda path, victim: path.symlink_to(victim),
    "hard link": lambda path, victim: path.hardlink_to(victim),
    "link to itself": lambda path, _: path.symlink_to(path.name),
    "socket": lambda path, _: _make_socket(path),
    "huge file": lambda path, _: _make_huge(path),
    "folder": lambda path, _: (path / "inner").mkdir(parents=True),
    "unreadable file": lambda path, _: _make_unreadable(path),
}
NAMES = (
    *(PROCESS_FILE, EXIT_FILE, STOP_FILE, YIELD_FILE, SAVERS_FILE, "done", "result", "steps", "modules", "grace"),
    *("checkpoint.json", "restored-home", "exit.json.new", "stop.new"),
)


def _read_and_write_all(paths: Paths, key: RunKey) -> None:
    """Do what the agent does with the folder of a run."""
    folder = paths.folder(key)
    savers_of(folder)
    may_save(folder, [1])
    exit_status.exit_file(folder)
    process_of(Path(folder))
    job_reports.read_record(paths.steps(key), 1)
    job_reports.read_names(paths.checkpoint_names(key))
    job_reports.read_grace(paths.grace(key), key)
    read_modules(paths, key)
    assert _SECRET not in job_files.read_file(folder, "done", 64).text
    job_files.find_unusable(folder, NAMES)
    job_files.write_file(folder, STOP_FILE, b"{}")
    job_files.touch_file(folder, YIELD_FILE)
    assert Path(folder, STOP_FILE).read_bytes() == b"{}"
    assert job_files.has_file(folder, YIELD_FILE)
    Results(paths).take_result("cluster", key)


@pytest.mark.parametrize("kind", OBSTACLES)
def test_no_obstacle_makes_the_agent_wait_or_write_elsewhere(tmp_path: Path, kind: str) -> None:
    paths = Paths(tmp_path / "state", tmp_path / "checkpoints", "spool")
    for number, name in enumerate(NAMES, start=1):
        key, victim = RunKey(number, 1), tmp_path / f"victim-{number}"
        victim.write_text("" if kind == "hard link" else _SECRET)
        folder = paths.folder_path(key)
        folder.mkdir(parents=True)
        OBSTACLES[kind](folder / name, victim)
        began = time.monotonic()
        _read_and_write_all(paths, key)
        assert time.monotonic() - began < _LONGEST, name
        assert victim.read_text() == ("" if kind == "hard link" else _SECRET), name


@pytest.mark.parametrize("kind", OBSTACLES)
@pytest.mark.parametrize("name", ["warm", "warm/modules", "warm/go.json", "warm/go.new", "warm/warmed"])
def test_a_warm_process_is_not_led_elsewhere(tmp_path: Path, kind: str, name: str) -> None:
    paths = Paths(tmp_path / "state", tmp_path / "checkpoints", "spool")
    victim = tmp_path / "victim"
    victim.write_text(_SECRET)
    obstacle = paths.folder_path(KEY) / name
    obstacle.parent.mkdir(parents=True)
    OBSTACLES[kind](obstacle, victim)
    warm = WarmFolder(paths, KEY)
    assert isinstance(warm.is_warm, bool)
    warm.make(["json"])
    warm.go({"NAME": "value"})
    assert warm.exists
    assert (paths.folder_path(KEY) / "warm" / "modules").read_text() == "json"
    assert victim.read_text() == _SECRET


def test_a_folder_that_is_a_link_is_not_entered(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text(_SECRET)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "up").symlink_to(elsewhere)
    assert job_files.read_file(str(tmp_path / "run"), "up/file", 64).data is None
    with pytest.raises(OSError, match=r"up/file|Not a directory|Too many"):
        job_files.write_file(str(tmp_path / "run"), "up/file", b"changed")
    for path in ("../elsewhere/file", "/etc/passwd", "", "a/../../b", "a\0b"):
        with pytest.raises(OSError, match="not a name inside"):
            job_files.open_below(str(tmp_path / "run"), path)
    assert (elsewhere / "file").read_text() == _SECRET


def test_no_file_elsewhere_is_taken_for_the_control_file_of_a_process_that_has_ended(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text(_SECRET)
    (tmp_path / "park").symlink_to(elsewhere)
    assert control.live(str(tmp_path / "park")) == []
    assert (elsewhere / "file").read_text() == _SECRET


def test_no_job_keeps_the_launcher_from_starting_others(play: Play) -> None:
    tricks = ["mkfifo exit.json.new; rm process.json", "rm process.json; mkfifo process.json exit.json"]
    tricks += [
        "ln -s /dev/zero exit.json; ln -sf /dev/zero process.json",
        "mkdir exit.json; rm process.json",
    ]
    tricks += ["touch stop.json yielded; mkfifo savers; exit 143", "touch stop.json yielded; ln -s /dev/zero savers; exit 143"]
    tricks += ["touch victim; rm process.json; ln victim process.json", "ln -s ../victim exit.json.new; rm process.json"]

    async def scene(client: Client) -> None:
        victim = client.state / "victim"
        victim.write_text(_SECRET)
        for number, trick in enumerate(tricks, start=1):
            began = time.monotonic()
            client.spawn("sh", "-c", trick, key=RunKey(number, 1))
            await client.next(Spawned)
            await client.next(Ended)
            client.launcher.find(RunKey(number, 1), client.state / f"{number}.1")
            heard: Event = await client.events.get()
            assert not isinstance(heard, Ended)
            _, text = await client.run("echo", "next", key=RunKey(100 + number, 1))
            assert text == "next\n"
            assert time.monotonic() - began < 10 * _LONGEST, trick
        assert victim.read_text() == _SECRET
        (client.state / "200.1").symlink_to(client.state / "1.1")
        client.spawn("true", key=RunKey(200, 1))
        assert isinstance(await client.next(Unable), Unable)

    play(scene)


def test_where_a_folder_above_is_none_there_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    content = job_files.read_file(f"{tmp_path}/runs/1.1", PROCESS_FILE, 100)
    assert (content.data, content.why) == (None, "")
    (tmp_path / "run").symlink_to(tmp_path)
    assert job_files.read_file(f"{tmp_path}/run", PROCESS_FILE, 100).why, "a link in place of the folder says nothing"
