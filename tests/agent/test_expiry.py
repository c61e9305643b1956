"""The folders of runs that ended long ago."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from node_agent.processes.stray_processes import OVER
from node_agent.user_files.folder_expiry import find_expired, remove_expired
from tests.agent.conftest import AgentProcess, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler

LONG_AGO, BEFORE = 1_000.0, 2_000.0


def folder(state: Path, name: str, *files: str, at: float = LONG_AGO) -> Path:
    """Of a run, `name` being <spool>/<run>, which was written to at this time."""
    made = state / "runs" / name
    made.mkdir(parents=True)
    for file in files:
        (made / file).write_text("{}")
        os.utime(made / file, (at, at))
    os.utime(made, (at, at))
    return made


def names(state: Path, known: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    return {f"{run.parent.name}/{run.name}" for run in find_expired(state, "s", known, BEFORE)}


def test_those_that_ended_long_ago(tmp_path: Path) -> None:
    folder(tmp_path, "s/1.1", "process.json", "exit.json")
    folder(tmp_path, "s/2.1", "process.json", "exit.json")
    os.utime(tmp_path / "runs/s/2.1/exit.json")
    assert names(tmp_path) == {"s/1.1"}


def test_one_that_the_spool_answers_for_stays(tmp_path: Path) -> None:
    """It may be alive, or its end may not be told yet, whatever its files say."""
    folder(tmp_path, "s/1.1", "process.json", "exit.json")
    assert names(tmp_path, {"1.1"}) == set()


def test_one_whose_end_nobody_wrote_down_counts_from_its_last_word(tmp_path: Path) -> None:
    folder(tmp_path, "s/1.1", "process.json", "output.log")
    folder(tmp_path, "s/2.1", "process.json", "output.log")
    os.utime(tmp_path / "runs/s/2.1/output.log")
    assert names(tmp_path) == {"s/1.1"}


def test_those_of_another_spool_once_none_of_them_lives(tmp_path: Path) -> None:
    folder(tmp_path, "old/1.1", "process.json", "exit.json")
    assert names(tmp_path, {"1.1"}) == set()
    (tmp_path / "runs/old" / OVER).touch()
    assert names(tmp_path, {"1.1"}) == {"old/1.1"}


def test_there_may_be_none(tmp_path: Path) -> None:
    assert names(tmp_path) == set()


async def test_a_disk_that_cannot_be_read_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path, "s/1.1", "exit.json")
    sick = folder(tmp_path, "t", OVER)
    scandir = os.scandir

    def fails(path: Path) -> object:
        if path == sick:
            raise OSError(5, "Input/output error", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fails)
    assert await remove_expired(tmp_path, "s", (), BEFORE) == 1


async def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "results").write_text("kept")
    run = folder(tmp_path, "s/1.1", "exit.json")
    (run / "data").symlink_to(mine)
    (tmp_path / "runs/s/2.1").symlink_to(mine)
    os.utime(run, (LONG_AGO, LONG_AGO))
    assert await remove_expired(tmp_path, "s", (), BEFORE) == 1
    assert not run.exists()
    assert (mine / "results").read_text() == "kept"
    assert (tmp_path / "runs/s/2.1").is_symlink()


async def test_a_folder_that_its_owner_made_read_only(tmp_path: Path) -> None:
    run = folder(tmp_path, "s/1.1", "exit.json")
    (run / "cache").mkdir()
    (run / "cache" / "module").touch()
    (run / "cache").chmod(0o500)
    assert await remove_expired(tmp_path, "s", (), BEFORE) == 1
    assert list((tmp_path / "runs/s").iterdir()) == []


async def test_one_that_was_removed_in_part_goes_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = folder(tmp_path, "s/1.1", "exit.json")
    other = folder(tmp_path, "s/2.1", "exit.json")

    def breaks(path: Path) -> None:
        (path / "exit.json").unlink()
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("node_agent.user_files.folder_expiry.shutil.rmtree", breaks)
    assert await remove_expired(tmp_path, "s", (), BEFORE) == 0
    assert "folders of runs that ended long ago cannot be removed: 2, the first: " in caplog.text
    assert "Input/output error" in caplog.text
    assert not run.exists(), "nobody takes half of it for the run's"
    assert not other.exists()
    monkeypatch.undo()
    assert await remove_expired(tmp_path, "s", (), BEFORE) == 2
    assert list((tmp_path / "runs/s").iterdir()) == []


def test_the_agent_does_so_where_it_is_told_to(
    agent: Callable[..., AgentProcess], scheduler: FakeScheduler, state: Path
) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(7, "/bin/true")
    scheduler.exited(7)
    recent = run_directory(state, 7)
    spool = recent.parent.name
    old = folder(state, f"{spool}/3.1", "exit.json", at=time.time() - 2.5 * 86400)
    first.terminate()
    second = agent("--keep-runs", "2")
    until(lambda: not old.exists())
    until(lambda: "removed folders of runs that ended more than 2 days ago: 1" in second.log.read_text())
    assert recent.exists()
