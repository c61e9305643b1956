"""Which processes belong to a run: on tables of processes, and on real ones."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from node_agent.measuring.observations import owners
from node_agent.processes import stray_processes
from node_agent.processes.launcher.spawn import PROCESS_FILE
from node_agent.processes.process_groups import boot_id, start_ticks, stat_fields
from node_agent.processes.run_members import Kernel, RunMembers
from node_agent.run_state.model import Process, RunKey
from tests.agent.conftest import AgentProcess, alive, lose_spool, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler

Start = Callable[..., AgentProcess]
STATE, RUN = "/ebb", "/ebb/runs/ab12/7.1"
SHELL, LAUNCHER, OTHER_LAUNCHER, LEADER = 50, 100, 200, 101
ARGV = (b"python", b"-I", b"-S", b"/opt/ebb/node_agent/processes/launcher/launcher.py", b"5", b"60.0")


@dataclass
class Table(Kernel):
    """A table of processes: pid -> (parent, group, session, the run that its environment names)."""

    rows: dict[int, tuple[int, int, int, str]] = field(default_factory=dict)
    launchers: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)

    def stat(self, pid: int) -> list[str]:
        if pid not in self.rows:
            return []
        parent, group, session, _ = self.rows[pid]
        return ["S", str(parent), str(group), str(session), *["0"] * 15, str(pid * 10)]

    def environment(self, pid: int) -> bytes:
        run = self.rows[pid][3]
        return f"A=b\0EBB_RUN_DIR={run}\0".encode() if run else b"A=b\0"

    def command(self, pid: int) -> list[bytes]:
        return [*ARGV, b""] if pid in self.launchers else [b"sleep", b"1", b""]

    def control_group(self, pid: int) -> str:
        return self.groups.get(pid, "0::/user.slice")

    def pids(self) -> list[int]:
        return list(self.rows)

    def works_for(self, launcher: int, run_directory: str, _pid: int) -> bool:
        return run_directory.startswith(f"{self.launchers[launcher]}/runs/")


BASE = {
    1: (0, 1, 1, ""),
    SHELL: (1, SHELL, SHELL, ""),
    LAUNCHER: (1, LAUNCHER, LAUNCHER, ""),
    OTHER_LAUNCHER: (1, OTHER_LAUNCHER, OTHER_LAUNCHER, ""),
    LEADER: (LAUNCHER, LEADER, LEADER, RUN),
}
BELONGS = {
    "the recorded process": {},
    "a child": {300: (LEADER, LEADER, LEADER, RUN)},
    "a child with an environment of its own": {300: (LEADER, 300, LEADER, "")},
    "a child in a session of its own": {300: (LEADER, 300, 300, RUN)},
    "a daemon that the launcher has adopted": {300: (LAUNCHER, 300, 300, RUN)},
    "a child of such a daemon": {299: (LAUNCHER, 299, 299, RUN), 300: (299, 300, 300, RUN)},
    "left in the session of a process that has ended": {LEADER: None, 300: (1, 300, LEADER, "")},
    "left to init by a launcher that has died": {LAUNCHER: None, LEADER: None, 300: (1, 300, 300, RUN)},
    "a child of one left to init": {LAUNCHER: None, LEADER: None, 299: (1, 299, 299, RUN), 300: (299, 299, 299, RUN)},
}
STRANGERS = {
    "started from a shell": {300: (SHELL, 300, SHELL, RUN)},
    "in a session of its own, started from a shell": {300: (SHELL, 300, 300, RUN)},
    "a grandchild of a shell": {299: (SHELL, 299, 299, RUN), 300: (299, 299, 299, RUN)},
    "of the launcher of another state directory": {300: (OTHER_LAUNCHER, 300, 300, RUN)},
    "without the launcher, started from a shell": {LAUNCHER: None, LEADER: None, 300: (SHELL, 300, 300, RUN)},
    "a child of the first process, in its session": {LAUNCHER: None, LEADER: None, 300: (1, 300, 1, RUN)},
    "left to init, for another run": {LAUNCHER: None, LEADER: None, 299: (1, 299, 299, "/x"), 300: (299, 299, 299, RUN)},
    "it has ended": {301: (SHELL, 1, 1, RUN)},
}


def table(changes: dict[int, tuple[int, int, int, str] | None]) -> Table:
    rows = {pid: row for pid, row in (BASE | changes).items() if row is not None}
    return Table(rows, {pid: state for pid, state in {LAUNCHER: STATE, OTHER_LAUNCHER: "/other"}.items() if pid in rows})


@pytest.mark.parametrize("how", BELONGS)
def test_a_process_belongs_to_a_run(how: str) -> None:
    pid = 300 if BELONGS[how] else LEADER
    assert RunMembers(table(BELONGS[how])).belongs_to(pid, RUN, Process(LEADER, LEADER * 10))


@pytest.mark.parametrize("how", STRANGERS)
def test_an_environment_alone_proves_nothing(how: str) -> None:
    assert not RunMembers(table(STRANGERS[how])).belongs_to(300, RUN, Process(LEADER, LEADER * 10))


def test_a_later_owner_of_the_number_of_a_recorded_process_leads_nothing() -> None:
    members = RunMembers(table({LEADER: (SHELL, LEADER, LEADER, ""), 300: (LEADER, LEADER, LEADER, "")}))
    assert members.is_led_by(300, Process(LEADER, LEADER * 10))
    assert not members.is_led_by(300, Process(LEADER, 7))


def test_a_control_group_names_a_run() -> None:
    kernel = table({})
    kernel.groups = {LEADER: "0::/system.slice/ebb-agent.service/runs/ab12.7.1/inner"}
    assert RunMembers(kernel).find_control_group(LEADER, "ab12") == "ab12/7.1"
    assert RunMembers(kernel).find_control_group(LEADER, "cd34") == ""


# ---- real processes ----------------------------------------------------------------------------------------------------

DAEMON = """
import os, sys, time
if os.fork():
    os.wait()
    print("left", flush=True)
    time.sleep(600)
os.setsid()
if os.fork():
    os._exit(0)
open(os.environ["EBB_RUN_DIR"] + "/daemon", "w").write(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture
def pretender(state: Path, tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Starts a process that no launcher has started, with the environment of a run."""
    begun = []

    def start(run: str, checkpoints: Path = tmp_path / "shared") -> int:
        variables = {"EBB_RUN_DIR": run, "EBB_NODE": "n1", "EBB_CHECKPOINT_DIR": f"{checkpoints}/c1/job-1"}
        begun.append(subprocess.Popen(["sleep", "600"], env=os.environ | variables, start_new_session=True))
        return begun[-1].pid

    yield start
    for process in begun:
        process.kill()
        process.wait()


def test_a_daemon_of_a_run_stays_its_own(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    """Nobody kills it while the run lives, it is found by its launcher, and after that one's death by what it left."""
    agent()
    scheduler.connected()
    scheduler.start(1, sys.executable, "-S", "-c", DAEMON)
    leader = scheduler.started(1).pid
    folder = run_directory(state, 1)
    pid = int(until(lambda: (folder / "daemon").exists() and (folder / "daemon").read_text()))
    until(lambda: stat_fields(pid)[1] == stat_fields(leader)[1])  # the launcher has adopted it
    members, spool = RunMembers(), folder.parent.name
    assert owners([pid, os.getpid()], {1 << 22: RunKey(1, 1)}, state, spool) == {pid: RunKey(1, 1), os.getpid(): None}
    assert members.is_started_by_launcher(pid, str(folder))
    assert not members.is_started_by_launcher(os.getpid(), str(folder))
    assert members.is_led_by(leader, Process(leader, start_ticks(leader)))
    os.kill(pid, signal.SIGKILL)


def test_the_end_of_an_adopted_process_ends_no_other(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    """A shell that its run has left leads the group of a daemon, and ends."""
    agent()
    scheduler.connected()
    inner = "sleep 1000 & echo $$ $! >pids.new; mv pids.new pids; until [ -e go ]; do sleep 0.02; done"
    scheduler.start(1, "/bin/sh", "-c", f"(setsid sh -c '{inner}' &); sleep 1000")
    leader = scheduler.started(1).pid
    folder = run_directory(state, 1)
    shell, daemon = map(int, until(lambda: (folder / "pids").exists() and (folder / "pids").read_text()).split())
    assert stat_fields(shell)[1] == stat_fields(leader)[1]
    (folder / "go").touch()
    until(lambda: not stat_fields(shell))  # the launcher has collected it
    assert alive(daemon)
    assert stat_fields(daemon)[1:3] == [stat_fields(leader)[1], str(shell)]
    os.kill(daemon, signal.SIGKILL)


def test_a_pretender_neither_keeps_an_agent_from_starting_nor_is_killed(
    agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path, pretender: Callable[[str], int]
) -> None:
    elsewhere = pretender(str(tmp_path / "other" / "runs" / "ab12" / "7.1"))
    lost = pretender(str(state / "runs" / "ab12" / "7.1"))
    first = agent("--checkpoints", str(tmp_path / "shared"))
    scheduler.connected()
    scheduler.start(1, "sleep", "1000")
    pid = scheduler.started(1).pid
    claims = pretender(str(run_directory(state, 1)))
    first.kill()
    lose_spool(state)  # its runs are strangers now, and are killed
    agent("--checkpoints", str(tmp_path / "shared"))
    scheduler.connected(2)
    assert not alive(pid)
    assert [alive(each) for each in (elsewhere, lost, claims)] == [True, True, True]


def test_a_recorded_process_of_another_state_directory_is_found(
    state: Path, tmp_path: Path, pretender: Callable[[str], int]
) -> None:
    folder = tmp_path / "other" / "runs" / "ab12" / "7.1"
    folder.mkdir(parents=True)
    pid = pretender(str(folder))
    assert stray_processes.find_elsewhere(state, "n1", tmp_path / "shared") == {}
    record = {"pid": pid, "start": start_ticks(pid), "boot": boot_id()}
    (folder / PROCESS_FILE).write_text(json.dumps(record))
    assert stray_processes.find_elsewhere(state, "n1", tmp_path / "shared") == {tmp_path / "other": {"7.1"}}
    (folder / PROCESS_FILE).write_text(json.dumps(record | {"start": 1}))
    assert stray_processes.find_elsewhere(state, "n1", tmp_path / "shared") == {}
