"""The spool: nothing is lost with the process that wrote it."""

import json
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from node_agent.errors import SpoolDamaged, StateUnusable
from node_agent.processes.process_groups import boot_id
from node_agent.run_state.events import Exited, Ready, Started
from node_agent.run_state.model import Gang, LaunchSpec, RunKey, RunPhase, RunRecord, StopReason
from node_agent.runs.spool_opening import forget, open_spool
from node_agent.spool import identity
from node_agent.spool.identity import Identity
from node_agent.spool.spool import KEEP_ENDED, Spool

ROOT = Path(__file__).parents[2]
KEY = RunKey(1, 1)
GARBAGE = b"this is no database, though it is long enough to be taken for one" * 10
GANG = Gang(1, 3, 1, 2, 0, ("a", "b"), "a", 77)
LAUNCH = LaunchSpec(KEY, ("a", "b c"), (("X", "1"), ("Y", "ü")), "/w", "name", "user", (0, 3), 64, 5, GANG)
STARTING = RunRecord(KEY, RunPhase.STARTING, LAUNCH, log_path="/l", generation=2)
RUNNING = RunRecord(KEY, RunPhase.RUNNING, None, 12, 345, "/l")
ENDED = replace(RUNNING, phase=RunPhase.ENDED, ended_at=1000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


def reopened(spool: Spool, path: Path) -> Spool:
    spool.close()
    return open_spool(path)


def test_everything_is_there_again(path: Path) -> None:
    spool = open_spool(path)
    boot_id = spool.boot_id
    task = replace(STARTING, key=RunKey(1, 1, 1), phase=RunPhase.READY, port=77, memory_mib=64, oom_kills=2, out_of_memory=True)
    task = replace(task, device_memory="it uses 2 MiB of device 0, and may use 1 MiB")
    spool.remember([STARTING, task])
    spool.obey("c", 4, b"\x00seal")
    spool = reopened(spool, path)
    assert spool.seal == b"\x00seal"
    assert dict(spool.runs) == {KEY: STARTING, task.key: task}
    spool.report(replace(task, phase=RunPhase.ENDED), Ready("a", 77))
    spool = reopened(spool, path)
    assert [(r.sequence, r.key, r.event) for r in spool.pending()] == [(1, task.key, Ready("a", 77))]
    spool.acknowledge(1)
    stopping = replace(RUNNING, phase=RunPhase.STOPPING, stop_received=1.5, stop_deadline=2.5, signalled=True)
    stopping = replace(stopping, stop_reason=StopReason.DRAINED, stop_cause=8)
    spool.report(stopping, Started(12, "/l"))
    spool = reopened(spool, path)
    assert spool.runs[KEY] == stopping
    assert spool.live() == [stopping]
    exited = Exited(0, 15, True, "why", True, True)
    spool.report(replace(stopping, phase=RunPhase.ENDED, ended_at=time.time()), exited)
    spool = reopened(spool, path)
    assert [(r.sequence, r.key, r.event) for r in spool.pending()] == [(2, KEY, Started(12, "/l")), (3, KEY, exited)]
    assert spool.live() == []
    assert spool.cluster == ("c", 4)
    assert spool.boot_id == boot_id
    spool.close()


def test_numbers_have_no_gaps_and_never_return(path: Path) -> None:
    spool = open_spool(path)
    for _ in range(3):
        spool.report(RUNNING, Started(1, ""))
    spool.acknowledge(2)
    assert [r.sequence for r in spool.pending()] == [3]
    spool.acknowledge(3)
    spool.acknowledge(1)
    spool = reopened(spool, path)
    assert spool.pending() == []
    spool.report(RUNNING, Started(1, ""), Exited(0))
    assert [r.sequence for r in spool.pending()] == [4, 5]
    assert [r.sequence for r in spool.pending(after=4)] == [5]
    spool.close()


def test_a_change_and_its_report_are_one(path: Path) -> None:
    spool = open_spool(path)
    spool.report(RUNNING, Started(1, ""))
    with pytest.raises(KeyError):
        spool.report(ENDED, Exited(0), None)  # type: ignore[arg-type]
    assert spool.runs[KEY] == RUNNING
    spool = reopened(spool, path)
    assert spool.runs[KEY] == RUNNING
    assert [r.sequence for r in spool.pending()] == [1]
    spool.report(ENDED, Exited(0))
    assert [r.sequence for r in spool.pending()] == [1, 2]
    spool.close()


def test_what_is_written_together_is_one_transaction_and_each_run_once(path: Path) -> None:
    spool = open_spool(path)
    said: list[str] = []
    spool._db.set_trace_callback(said.append)
    with spool.write_together():
        pass
    assert said == []
    with spool.write_together():
        for run in (1, 2):
            spool.report(replace(RUNNING, key=RunKey(1, run)), Started(run, ""))
            spool.report(replace(ENDED, key=RunKey(1, run)), Exited(run))
        assert said == []
        assert [r.sequence for r in spool.pending()] == [1, 2, 3, 4]
    kinds = [text.partition(" VALUES")[0] for text in said]
    runs, reports = ["INSERT OR REPLACE INTO run"] * 2, ["INSERT INTO report"] * 4
    assert kinds == ["BEGIN IMMEDIATE", *runs, *reports, "INSERT OR REPLACE INTO meta", "COMMIT"]
    spool = reopened(spool, path)
    assert {record.phase for record in spool.runs.values()} == {RunPhase.ENDED}
    assert [r.sequence for r in spool.pending()] == [1, 2, 3, 4]
    spool.close()


def test_what_fails_together_changes_nothing(path: Path) -> None:
    spool = open_spool(path)
    spool.report(RUNNING, Started(1, ""))

    def fail() -> None:
        with spool.write_together():
            spool.report(ENDED, Exited(0))
            spool.acknowledge(2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    for held in (spool, reopened(spool, path)):
        assert held.runs[KEY] == RUNNING
        assert [r.sequence for r in held.pending()] == [1]
    held.report(ENDED, Exited(0))
    assert [r.sequence for r in held.pending()] == [1, 2]
    held.close()


WRITER = """
import os, pathlib, sys
from dataclasses import asdict, replace
from node_agent.run_state.model import (RunKey)
from node_agent.run_state.events import (Report)
from node_agent.spool.spool import _Unwritten
from tests.agent.test_spool import RUNNING, Exited, Started, open_spool

spool = open_spool(pathlib.Path(sys.argv[1]))
for run in range(1, 51):
    spool.report(replace(RUNNING, key=RunKey(1, run)), Started(run, ""), Exited(run))
late = RunKey(2, 1)
half = _Unwritten({late: replace(RUNNING, key=late)}, [Report(101, late, Started(51, ""))])
spool._db.execute("BEGIN")
half.write(spool._db, 102)
os.kill(os.getpid(), 9)
"""


def test_a_writer_that_dies_leaves_whole_writes(path: Path) -> None:
    # A process of its own, not a fork: a fork of a process with gRPC's threads may never come to its first line.
    assert subprocess.run([sys.executable, "-c", WRITER, path], cwd=ROOT, timeout=60).returncode == -signal.SIGKILL
    spool = open_spool(path)
    assert len(spool.runs) == 50
    assert [r.sequence for r in spool.pending()] == list(range(1, 101))
    spool.close()


def test_ended_runs_are_forgotten_after_a_day_once_acknowledged(path: Path) -> None:
    spool = open_spool(path)
    spool.report(ENDED, Exited(0))
    late = 1000.0 + KEEP_ENDED + 1
    assert spool.prune(late) == 0
    spool.acknowledge(1)
    assert spool.prune(late - 2) == 0
    assert spool.prune(late) == 1
    assert dict(spool.runs) == {}
    spool.close()


def test_a_reboot_ends_runs_and_numbers_but_not_obedience(path: Path) -> None:
    spool = open_spool(path, kernel_boot="one")
    spool.report(RUNNING, Started(1, ""))
    spool.obey("c", 9)
    spool.close()
    again = open_spool(path, kernel_boot="two")
    assert again.boot_id != spool.boot_id
    assert (dict(again.runs), again.pending(), again.cluster) == ({}, [], ("c", 9))
    again.report(RUNNING, Started(1, ""))
    assert [r.sequence for r in again.pending()] == [1]
    again.close()


def test_a_spool_that_a_power_cut_has_damaged_is_not_looked_at(path: Path) -> None:
    spool = open_spool(path, kernel_boot="one")
    spool.report(RUNNING, Started(1, ""))
    spool.obey("c", 9)
    spool.close()
    for suffix in ("", "-wal"):
        path.with_name(path.name + suffix).write_bytes(GARBAGE)
    again = open_spool(path, kernel_boot="two")
    assert (dict(again.runs), again.pending(), again.cluster) == ({}, [], ("c", 9))
    assert again.boot_id.startswith("two/")
    assert again.short_id != spool.short_id
    again.close()


def test_a_spool_that_is_given_up_takes_everything_with_it(path: Path) -> None:
    spool = open_spool(path)
    spool.report(ENDED, Started(1, ""), Exited(0))
    spool.obey("c", 9)
    new = forget(spool)
    assert (dict(new.runs), new.pending(), new.cluster) == ({}, [], ("", 0))
    assert new.boot_id != spool.boot_id
    new.report(RUNNING, Started(1, ""))
    assert [r.sequence for r in new.pending()] == [1]
    boot_id = new.boot_id
    new = reopened(new, path)
    assert (new.boot_id, new.cluster) == (boot_id, ("", 0))
    new.close()


def test_what_fails_together_leaves_memory_as_the_file(path: Path) -> None:
    spool = open_spool(path)
    spool.report(RUNNING, Started(1, ""))

    def fail() -> None:
        with spool.write_together():
            spool.acknowledge(1)
            spool.remember([replace(RUNNING, key=RunKey(2, 1))])
            spool.report(ENDED, Exited(0))
            raise OSError("no more descriptors")

    with pytest.raises(OSError, match="no more descriptors"):
        fail()
    assert dict(spool.runs) == {KEY: RUNNING}
    assert [r.sequence for r in spool.pending()] == [1]
    spool.report(ENDED, Exited(0))
    assert [r.sequence for r in spool.pending()] == [1, 2]
    spool = reopened(spool, path)
    assert dict(spool.runs) == {KEY: ENDED}
    spool.close()


OLD = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE run (
    job_id INTEGER NOT NULL, run INTEGER NOT NULL, phase INTEGER NOT NULL, start_order TEXT, pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL, log_path TEXT NOT NULL, stop_received REAL, stop_deadline REAL, signalled INTEGER NOT NULL,
    ended_at REAL, PRIMARY KEY (job_id, run)) WITHOUT ROWID;
CREATE TABLE report (
    sequence INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, run INTEGER NOT NULL, event TEXT NOT NULL);
INSERT INTO meta VALUES ('spool_id', 'abc'), ('next_sequence', '8');
INSERT INTO run VALUES (1, 1, 2, NULL, 12, 345, '/l', NULL, NULL, 0, NULL);
INSERT INTO run VALUES (1, 2, 1, '{"key": [1, 2], "command": ["a"], "environment": [["X", "1"]], "working_directory": "/w",
    "name": "n", "user": "u", "devices": [0]}', 0, 0, '/l', NULL, NULL, 0, NULL);
INSERT INTO report VALUES (7, 1, 1, '{"kind": "Started", "pid": 12, "log_path": "/l"}');
"""


def test_a_spool_of_the_first_agents_is_taken_over(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(OLD)
    identity.write(path.with_name(identity.FILE), Identity(boot_id(), "c", 9))
    for _ in range(2):
        spool = open_spool(path)
        launch = LaunchSpec(RunKey(1, 2), ("a",), (("X", "1"),), "/w", "n", "u", (0,))
        waiting = RunRecord(launch.key, RunPhase.STARTING, launch, log_path="/l")
        assert dict(spool.runs) == {KEY: RUNNING, launch.key: waiting}
        assert [(r.sequence, r.key, r.event) for r in spool.pending()] == [(7, KEY, Started(12, "/l"))]
        assert (spool.short_id, spool.cluster) == ("abc", ("c", 9))
        spool.close()
    spool = open_spool(path)
    spool.report(replace(RUNNING, key=RunKey(1, 1, 1)), Started(13, "/l"))
    assert [(r.sequence, r.key) for r in spool.pending()] == [(7, KEY), (8, RunKey(1, 1, 1))]
    spool.close()


SECOND = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE run (
    job_id INTEGER NOT NULL, run INTEGER NOT NULL, task INTEGER NOT NULL, phase INTEGER NOT NULL, start_order TEXT,
    pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, log_path TEXT NOT NULL, stop_received REAL, stop_deadline REAL,
    signalled INTEGER NOT NULL, ended_at REAL, stop_reason INTEGER NOT NULL, stop_cause INTEGER NOT NULL,
    port INTEGER NOT NULL, memory_mib INTEGER NOT NULL, oom_kills INTEGER NOT NULL, out_of_memory INTEGER NOT NULL,
    PRIMARY KEY (job_id, run, task)) WITHOUT ROWID;
CREATE TABLE report (
    sequence INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, run INTEGER NOT NULL, task INTEGER NOT NULL, event TEXT NOT NULL);
INSERT INTO meta VALUES ('spool_id', 'abc'), ('next_sequence', '1'), ('schema', 2);
"""


@pytest.mark.parametrize(
    ("phase", "go", "becomes"),
    [
        (RunPhase.STARTING, False, RunPhase.PREPARING),
        (RunPhase.READY, False, RunPhase.READY),
        (RunPhase.STARTING, True, RunPhase.STARTING),
        (RunPhase.STARTING, None, RunPhase.STARTING),
    ],
)
def test_a_spool_without_generations_is_taken_over(path: Path, phase: RunPhase, go: bool | None, becomes: RunPhase) -> None:
    """Then a start order said whether a task of a gang was to go; a task that was not goes on getting ready."""
    gang = Gang(1, 3, 1, 2, 0, ("a", "b"), "a" if go else "", 77 if go else 0)
    launch = LaunchSpec(KEY, ("a",), gang=None if go is None else gang)
    said = asdict(launch)
    if go is not None:
        said["gang"]["go"] = go
    with closing(sqlite3.connect(path)) as db:
        db.executescript(SECOND)
        row = (1, 1, 0, int(phase), json.dumps(said), 0, 0, "/l", None, None, 0, None, 0, 0, 0, 0, 0, 0)
        db.execute(f"INSERT INTO run VALUES ({', '.join('?' * len(row))})", row)
        db.commit()
    identity.write(path.with_name(identity.FILE), Identity(boot_id(), "c", 9))
    for _ in range(2):
        spool = open_spool(path)
        assert dict(spool.runs) == {KEY: RunRecord(KEY, becomes, launch, log_path="/l")}
        spool.close()


def test_a_spool_of_a_newer_agent_is_not_misread(path: Path) -> None:
    open_spool(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE meta SET value = 99 WHERE name = 'schema'")
        db.commit()
    with pytest.raises(SpoolDamaged, match="a newer agent wrote it"):
        open_spool(path)


def test_a_full_disk_is_no_damage(path: Path) -> None:
    open_spool(path).close()
    path.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # files can be made, and nothing written into them
    try:
        with pytest.raises(StateUnusable):
            open_spool(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    open_spool(path).close()


def test_a_disk_that_fills_up_is_said_in_words_and_memory_says_what_the_file_says(path: Path) -> None:
    with closing(open_spool(path)) as spool:
        spool.remember([RunRecord(RunKey(1, 1), RunPhase.STARTING)])
        pages = spool._db.execute("PRAGMA page_count").fetchone()[0]
        spool._db.execute(f"PRAGMA max_page_count = {pages}")
        many = [RunRecord(RunKey(number, 1), RunPhase.STARTING, log_path="x" * 4096) for number in range(2, 20)]
        with pytest.raises(StateUnusable, match=rf"{path.parent} cannot be used: database or disk is full"):
            spool.remember(many)
        assert list(spool.runs) == [RunKey(1, 1)]


@pytest.mark.parametrize("damaged", [GARBAGE, b"x", b"", "half", "row", "node.json"])
def test_a_damaged_spool_is_set_aside_and_said(path: Path, damaged: bytes | str, caplog: pytest.LogCaptureFixture) -> None:
    spool = open_spool(path)
    spool.remember([replace(STARTING, key=RunKey(1, run)) for run in range(1, 100)])
    spool.obey("c", 9)
    spool.close()
    match damaged:
        case bytes():
            path.write_bytes(damaged)
        case "half":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case "row":
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("UPDATE run SET launch = '{'")
        case _:
            path.with_name(identity.FILE).unlink()
    found = path.read_bytes()
    again = open_spool(path)
    assert again.boot_id != spool.boot_id
    assert (dict(again.runs), again.cluster) == ({}, ("", 0) if damaged == "node.json" else ("c", 9))
    assert path.with_name("spool.db.damaged-1").read_bytes() == found
    (said,) = caplog.records
    assert said.levelname == "WARNING"
    assert f"The spool {path} cannot be used (" in said.message
    assert "set aside as spool.db.damaged-1" in said.message
    assert said.message.endswith("Runs found alive: none")
    again.close()
    path.write_bytes(GARBAGE)
    reopened(again, path).close()
    assert path.with_name("spool.db.damaged-2").read_bytes() == GARBAGE


def test_the_nodes_name_outlives_the_spool_and_may_be_missing(path: Path) -> None:
    """The agents before this one did not keep it."""
    (path.with_name(identity.FILE)).write_text(json.dumps({"kernel_boot": boot_id(), "cluster_id": "c", "epoch": 9}))
    spool = open_spool(path)
    assert (spool.node, spool.cluster) == ("", ("c", 9))
    spool.name("n1")
    spool.obey("c", 10)
    spool.discard()
    spool = open_spool(path)
    assert (spool.node, spool.cluster) == ("n1", ("c", 10))
    spool.close()
