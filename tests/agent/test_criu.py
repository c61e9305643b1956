"""Programs that do not save their work are dumped by CRIU when they are stopped, and restored: by a fake and, where that works,
by the real program. Agents and launchers are real."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import job_pb2

from node_agent.checkpoints import criu
from node_agent.checkpoints.criu_dumps import Dumps
from node_agent.checkpoints.criu_images import read_image
from node_agent.devices.simulated import simulate_devices
from node_agent.processes.launcher.client import Ended, Restore, Spawned, SpawnRequest
from node_agent.processes.launcher.restoring import find_restored, now_ticks
from node_agent.processes.process_groups import start_ticks, stat_fields
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import LaunchSpec, RunKey, RunPhase, RunRecord, StopReason, clean
from tests.agent.conftest import AgentProcess, alive, lose_spool, of_state, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.launching import KEY, Client, Play
from tests.agent.test_checkpoint_fetches import Two

Start = Callable[..., AgentProcess]
COUNTS = """
import os, sys, time
path, word = sys.argv[1], os.urandom(8).hex()
count = int(open(path).read().split()[0]) if os.path.exists(path) else 0
while not os.path.exists(path + ".end"):
    count += 1
    with open(path + ".new", "w") as file:
        file.write(f"{count} {word}")
    os.replace(path + ".new", path)
    print(count, flush=True)
    time.sleep(0.01)
with open(os.environ["EBB_RESULT_FILE"], "w") as file:
    file.write(word)
sys.exit(3)
"""
"""Counts, keeps a random word in its memory, and exits with 3. It goes on from its file if it is executed again, as a program
does that the fake restores."""


class Counting:
    """The program, with its count in a file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "count"

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-S", "-c", COUNTS, str(self._path)]

    def count(self) -> int:
        return int(until(lambda: self._path.exists() and self._path.read_text()).split()[0])  # type: ignore[union-attr]

    def word(self) -> str:
        return self._path.read_text().split()[1]

    def advances(self) -> None:
        before = self.count()
        until(lambda: self.count() > before)

    def end(self) -> None:
        Path(f"{self._path}.end").touch()


class Plan:
    """Says how the fake behaves from now on."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "plan.json"
        script = folder / "bin" / "criu"
        script.parent.mkdir()
        module = Path(__file__).with_name("fake_criu.py")
        script.write_text(f'#!/bin/sh\nEBB_FAKE_CRIU="{self._path}" exec "{sys.executable}" -S "{module}" "$@"\n')
        script.chmod(0o755)
        self.program = str(script)
        self()

    def __call__(self, **given: Any) -> None:
        self._path.write_text(json.dumps(given))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(tmp_path)


@pytest.fixture
def counting(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


REAL = asyncio.run(criu.unusable())


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.skipif(bool(REAL), reason=clean(REAL)))])
def kind(request: pytest.FixtureRequest, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which CRIU is on the agent's PATH."""
    if request.param == "fake":
        _use(plan, monkeypatch)
    return str(request.param)


@pytest.fixture
def fake(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plan]:
    _use(plan, monkeypatch)
    yield plan
    plan()


def _use(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("the agent uses CRIU as root alone")
    monkeypatch.setenv("PATH", f"{Path(plan.program).parent}:{os.environ['PATH']}")


def begin(scheduler: FakeScheduler, counting: Counting, run: int = 1, **spec: Any) -> pb.RunStarted:
    scheduler.connected()
    scheduler.start(1, *counting.command, run=run, **spec)
    return scheduler.started(1, run)


def suspended(scheduler: FakeScheduler, counting: Counting, run: int = 1) -> pb.RunExited:
    """What is reported of a run that is suspended once it has advanced."""
    counting.advances()
    scheduler.stop(1, 60, run, reason=pb.STOP_REASON_SUSPENDED)
    return scheduler.exited(1, run)


def log_of(state: Path, run: int) -> list[int]:
    return [int(line) for line in (run_directory(state, 1, run) / "output.log").read_text().split()]


# What every CRIU does.


def test_a_program_goes_on_where_it_was_after_a_suspend(
    kind: str, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    first = begin(scheduler, counting)
    how = suspended(scheduler, counting)
    assert (how.yielded, how.told, how.exit_signal) == (True, True, signal.SIGKILL)
    assert how.checkpoint.startswith("CRIU saved its memory (")
    assert not alive(first.pid)
    at, word = counting.count(), counting.word()

    second = begin(scheduler, counting, run=2)
    assert second.restored.startswith("CRIU restored run 1, which was saved on n1: ")
    until(lambda: counting.count() > at)
    counting.end()
    how = scheduler.exited(1, 2)
    assert (how.exit_code, how.yielded) == (3, False)
    assert log_of(state, 2)[0] in (at, at + 1), "it prints into the log of its run"
    left = scheduler.result(1, 16, run=2).decode()
    assert left == counting.word(), "what it leaves where it thinks that its run is"
    if kind == "real":
        assert (second.pid, left) == (first.pid, word)


def test_a_program_is_dumped_again_and_again(
    kind: str, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting)
    for run in (2, 3):
        assert suspended(scheduler, counting, run - 1).yielded
        assert begin(scheduler, counting, run=run).restored.startswith(f"CRIU restored run {run - 1}")
        counting.advances()
    counting.end()
    assert scheduler.exited(1, 3).exit_code == 3
    if kind == "real":
        printed = [count for run in (1, 2, 3) for count in log_of(state, run)]
        assert printed == list(range(1, len(printed) + 1)), "each count once, whichever run took it"


TREE = "import os, subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"


def test_a_tree_of_processes_is_restored_and_killed_as_one(
    agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    if REAL:
        pytest.skip(REAL)
    agent("--criu", "on")
    scheduler.connected()
    command = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *counting.command]
    scheduler.start(1, *command)
    first = scheduler.started(1)
    word = until(lambda: counting.count() and counting.word())
    assert suspended(scheduler, counting).yielded
    scheduler.start(1, *command, run=2)
    second = scheduler.started(1, 2)
    assert second.restored.startswith("CRIU restored run 1")
    counting.advances()
    assert (second.pid, counting.word()) == (first.pid, word)
    scheduler.stop(1, 0, 2, reason=pb.STOP_REASON_CANCELLED)
    assert scheduler.exited(1, 2).exit_signal == signal.SIGKILL
    until(lambda: not [pid for pid in of_state(state) if stat_fields(pid)[3:4] == [str(first.pid)]])


# Who is dumped.


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("trap 'exit 7' TERM; touch ready; while :; do sleep 0.02; done", pb.STOP_REASON_SUSPENDED),
        ("echo x > $EBB_CHECKPOINT_DIR/own; touch ready; while :; do sleep 0.02; done", pb.STOP_REASON_SUSPENDED),
        ("echo $$ > $EBB_SAVERS_FILE; touch ready; while :; do sleep 0.02; done", pb.STOP_REASON_SUSPENDED),
        ("touch ready; while :; do sleep 0.02; done", pb.STOP_REASON_CANCELLED),
        ("touch ready; while :; do sleep 0.02; done", pb.STOP_REASON_TIME_LIMIT),
    ],
)
def test_a_program_that_saves_or_that_does_not_go_on_is_not_dumped(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, script: str, reason: pb.StopReason
) -> None:
    agent("--criu", "on")
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", script)
    until((run_directory(state, 1) / "ready").exists)
    scheduler.started(1)
    scheduler.stop(1, 30, reason=reason)
    how = scheduler.exited(1)
    assert (how.exit_code, how.exit_signal) in ((7, 0), (0, signal.SIGTERM))
    assert (how.yielded, how.checkpoint) == (False, "")
    assert not list(state.glob("checkpoints/*/job-1/.criu"))


WORKERS = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    open("ready", "w").close()
time.sleep(60)
"""


def test_workers_that_handle_sigterm_save_nothing(fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent("--criu", "on")
    scheduler.connected()
    scheduler.start(1, sys.executable, "-S", "-c", WORKERS)
    until((run_directory(state, 1) / "ready").exists)
    scheduler.started(1)
    scheduler.stop(1, 30, reason=pb.STOP_REASON_PREEMPTED)
    assert scheduler.exited(1).yielded
    assert not [pid for pid in of_state(state) if b"fork()" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_nothing_is_dumped_unless_the_site_wants_it(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent()
    begin(scheduler, counting)
    how = suspended(scheduler, counting)
    assert (how.exit_signal, how.yielded, how.checkpoint) == (signal.SIGTERM, False, "")
    assert begin(scheduler, counting, run=2).restored == ""


def test_a_node_without_criu_says_so_and_is_a_node_like_any_other(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    fake(version="Version: 3.17.1")
    one = agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).exit_signal == signal.SIGTERM
    assert "CRIU is too old (Version: 3.17.1): install CRIU 4.2 or later" in one.log.read_text()


def test_a_program_that_uses_a_gpu_is_not_dumped(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    record = RunRecord(RunKey(1, 1), RunPhase.STOPPING, LaunchSpec(RunKey(1, 1), ("cat",)), stop_reason=StopReason.PREEMPTED)
    dumps = Dumps(
        Paths(tmp_path, tmp_path, "s"), "n", lambda: "c", simulate_devices("cpu-20c", "n").inventory, "criu", gpus=str(device)
    )
    for opened, why in ((device, "it uses a GPU, and CRIU is used for programs on CPUs alone"), (Path(os.devnull), "")):
        with (
            opened.open() as file,
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file, start_new_session=True) as p,
        ):
            until(lambda pid=p.pid: b"cat" in Path(f"/proc/{pid}/cmdline").read_bytes())  # type: ignore[misc]
            running = replace(record, pid=p.pid, start_ticks=start_ticks(p.pid))
            assert dumps.why_not(running, "") == why
            assert dumps.why_not(replace(running, stop_reason=StopReason.CANCELLED), "") == "it is stopped for good (cancelled)"
            assert p.stdin is not None
            p.stdin.close()


# What fails.


def test_a_program_that_cannot_be_dumped_gets_sigterm(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting)
    fake(fail={"dump": "Can't dump a socket"})
    how = suspended(scheduler, counting)
    assert (how.exit_signal, how.yielded) == (signal.SIGTERM, False)
    assert how.checkpoint == "CRIU could not save it (Can't dump a socket); SIGTERM followed"
    assert begin(scheduler, counting, run=2).restored == "", "there is no dump"


def test_a_dump_that_takes_too_long_is_given_up(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting)
    fake(hang=["dump"])
    counting.advances()
    scheduler.stop(1, 3, reason=pb.STOP_REASON_PREEMPTED)
    how = scheduler.exited(1)
    assert (how.exit_signal, how.yielded) == (signal.SIGTERM, False)
    assert how.checkpoint.startswith("CRIU did not end within 2.7 s")
    until(lambda: not _running(state, "dump"))


def test_a_restore_that_is_refused_has_the_command_begin_anew_and_says_what_is_lost(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    word = counting.word()
    fake(fail={"restore": "Can't fork for 17: File exists"})
    started = begin(scheduler, counting, run=2)
    lost = "the work of run 1, which CRIU saved on n1, is lost, and the command starts again: CRIU cannot restore it ("
    assert started.restored == f"{lost}Can't fork for 17: File exists)"
    counting.advances()
    assert counting.word() != word
    assert suspended(scheduler, counting, 2).yielded, "and it can be dumped"
    fake()
    assert begin(scheduler, counting, run=3).restored.startswith("CRIU restored run 2")


def test_a_process_that_ends_as_soon_as_it_is_restored_is_the_end_of_its_run(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    fake(lives=False)
    assert begin(scheduler, counting, run=2).restored.startswith("CRIU restored run 1")
    assert scheduler.exited(1, 2).exit_code == 9


def test_a_program_that_has_saved_something_since_its_dump_is_not_restored(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    (folder,) = state.glob("checkpoints/*/job-1")
    (folder / "epoch-1").touch()
    assert begin(scheduler, counting, run=2).restored == ""


def test_a_run_with_other_devices_begins_anew(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting, devices=(1,))
    assert suspended(scheduler, counting).yielded
    assert begin(scheduler, counting, run=2, devices=(2,)).restored.endswith("starts again: it has other devices")
    assert suspended(scheduler, counting, 2).yielded
    assert begin(scheduler, counting, run=3, devices=(2,)).restored.startswith("CRIU restored run 2")


def test_a_restore_that_takes_too_long_is_killed_and_the_command_executed(play: Play, state: Path) -> None:
    async def scene(client: Client) -> None:
        folder = state / str(KEY)
        slow = Restore(("sh", "-c", "sleep 1000 & wait"), {"PATH": os.defpath, "EBB_RUN_DIR": str(folder)}, 1, 0.2)
        command = "sh", "-c", "exit 5"
        client.launcher.spawn(SpawnRequest(KEY, command, {"PATH": os.defpath}, state, folder, None, restore=slow))
        spawned = await client.next(Spawned)
        assert spawned.restored is False
        assert (await client.next(Ended)).code == 5
        until(lambda: not [pid for pid in of_state(state) if b"1000" in Path(f"/proc/{pid}/cmdline").read_bytes()])

    play(scene)


def test_a_launcher_that_quits_during_a_restore_leaves_nothing(play: Play, state: Path) -> None:
    async def scene(client: Client) -> None:
        folder = state / str(KEY)
        slow = Restore(("sleep", "1000"), {"PATH": os.defpath, "EBB_RUN_DIR": str(folder)}, 1, 1000.0)
        client.launcher.spawn(SpawnRequest(KEY, ("true",), {"PATH": os.defpath}, state, folder, None, restore=slow))
        (criu_pid,) = until(lambda: [pid for pid in of_state(state) if b"1000" in Path(f"/proc/{pid}/cmdline").read_bytes()])
        await client.launcher.quit()
        assert not alive(criu_pid)
        assert (await client.next(Ended)).signal == signal.SIGKILL

    play(scene)


def test_a_stranger_that_has_the_number_of_a_dumped_process_is_not_taken_for_it() -> None:
    script = "read _; sleep 1000 & echo $!; read _; kill $!"
    with subprocess.Popen(["sh", "-c", script], stdin=-1, stdout=-1, text=True, start_new_session=True) as one:
        assert one.stdin is not None
        assert one.stdout is not None
        until(lambda: now_ticks() > start_ticks(one.pid))
        since = now_ticks()
        one.stdin.write("go\n")
        one.stdin.flush()
        child = int(one.stdout.readline())
        until(lambda: start_ticks(child) >= since)
        assert find_restored(0, one.pid, since) == [], "its session is older, whatever begins there"
        assert set(find_restored(0, one.pid, start_ticks(one.pid))) == {one.pid, child}
        assert find_restored(one.pid, 0, since) == [child], "what CRIU has begun is found after it has ended"
        one.stdin.write("end\n")


@pytest.fixture
def uncollected(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has exited and is not collected. A dump has its pid, and the next run waits for that."""
    one = agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    (about,) = state.glob("checkpoints/*/job-1/.criu/ebb.json")
    with subprocess.Popen(["true"]) as process:
        until(lambda: stat_fields(process.pid)[0] == "Z")
        about.write_text(json.dumps(json.loads(about.read_text()) | {"pids": [process.pid]}))
        scheduler.start(1, *counting.command, run=2)
        until(lambda: "run 1.2: waits" in one.log.read_text())
        assert scheduler.of(1, 2) == []
        yield process


def test_a_run_waits_until_the_pids_of_its_dump_are_free(
    uncollected: subprocess.Popen[bytes], scheduler: FakeScheduler
) -> None:
    uncollected.wait()
    assert scheduler.started(1, 2).restored.startswith("CRIU restored run 1")


def test_a_run_that_waits_for_pids_can_be_stopped(uncollected: subprocess.Popen[bytes], scheduler: FakeScheduler) -> None:
    scheduler.stop(1, 0, 2, reason=pb.STOP_REASON_CANCELLED)
    assert scheduler.exited(1, 2).exit_signal == signal.SIGTERM
    assert len(scheduler.of(1, 2)) == 1, "it has not begun"


# Who is killed meanwhile.


def test_an_agent_that_is_killed_during_a_dump_finds_what_became_of_it(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    one = agent("--criu", "on")
    begin(scheduler, counting)
    fake(hang=["dump"])
    counting.advances()
    scheduler.stop(1, 60, reason=pb.STOP_REASON_SUSPENDED)
    until(lambda: _running(state, "dump"))
    one.kill()
    for pid in _running(state, "dump"):
        os.kill(pid, signal.SIGKILL)
    agent("--criu", "on")
    how = scheduler.exited(1)
    assert (how.exit_signal, how.yielded) == (signal.SIGTERM, False)
    assert how.checkpoint.startswith("CRIU could not save it (")


def test_an_agent_that_is_killed_during_a_restore_adopts_the_run(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    one = agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    fake(hang=["restore"])
    scheduler.start(1, *counting.command, run=2)
    until(lambda: _running(state, "restore"))
    one.kill()
    agent("--criu", "on")
    scheduler.connected(2)
    (criu_pid,) = _running(state, "restore")
    os.kill(criu_pid, signal.SIGKILL)
    started = scheduler.started(1, 2)
    assert "the command starts again: CRIU cannot restore it (" in started.restored
    counting.end()
    assert scheduler.exited(1, 2).exit_code == 3


def test_a_launcher_that_is_killed_during_a_restore_leaves_nothing_of_it(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    fake(hang=["restore"])
    scheduler.start(1, *counting.command, run=2)
    (criu_pid,) = until(lambda: _running(state, "restore"))
    launcher = int(stat_fields(criu_pid)[1])
    os.kill(launcher, signal.SIGKILL)
    until(lambda: not alive(launcher))
    fake()
    assert scheduler.started(1, 2).restored.startswith("CRIU restored run 1")
    assert not alive(criu_pid)
    counting.end()
    assert scheduler.exited(1, 2).exit_code == 3


def test_a_restored_run_survives_its_agent(
    kind: str, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    one = agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    begin(scheduler, counting, run=2)
    counting.advances()
    one.kill()
    agent("--criu", "on")
    scheduler.connected(2)
    counting.advances()
    counting.end()
    assert scheduler.exited(1, 2).exit_code == 3


def test_a_restored_run_is_no_stray_although_its_environment_names_another_spool(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    one = agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    one.kill()
    lose_spool(state)
    two = agent("--criu", "on")
    scheduler.connected(2)
    scheduler.committed = 0
    scheduler.start(1, *counting.command, run=2)
    assert scheduler.started(1, 2).restored.startswith("CRIU restored run 1")
    assert len({path.parent for path in state.glob("runs/*/1.*")}) == 2
    two.kill()
    agent("--criu", "on")
    scheduler.connected(3)
    counting.advances()
    counting.end()
    assert scheduler.exited(1, 2).exit_code == 3


# From node to node.


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    pair = Two(tmp_path)
    yield pair
    pair.close()


def moved(two: Two, counting: Counting, folder: Path, *flags: str) -> tuple[pb.RunStarted, pb.RunStarted]:
    """Has a script move to the destination, whose agent has these flags; how it began at both nodes."""
    script = folder / "count.py"
    script.write_text(COUNTS)
    command = (sys.executable, "-S", str(script), *counting.command[4:])
    source, destination = two.schedulers["source"], two.schedulers["destination"]
    address = two.start("source", "--criu", "on")
    two.start("destination", *flags)
    source.start(1, *command)
    first = source.started(1)
    launch = pb.Launch(spec=job_pb2.JobSpec(command=command), user="u")
    launch.checkpoint.CopyFrom(pb.CheckpointSource(node="source", address=address))
    destination.desire(1, 2, 0, warming=launch)
    destination.ready(1, 2)
    assert not list((folder / "destination").glob("runs/*/1.2/warm")), "it would be in the way of the restored one"
    counting.advances()
    source.stop(1, 60, reason=pb.STOP_REASON_MIGRATED)
    assert source.exited(1).yielded
    destination.desire(1, 2, 0, running=launch)
    return first, destination.started(1, 2)


def test_a_program_that_moves_is_not_made_warm_and_goes_on_at_the_other_node(
    kind: str, two: Two, tmp_path: Path, counting: Counting
) -> None:
    first, second = moved(two, counting, tmp_path, "--criu", "on")
    assert second.restored.startswith("CRIU restored run 1, which was saved on source: ")
    counting.advances()
    counting.end()
    destination = two.schedulers["destination"]
    assert destination.exited(1, 2).exit_code == 3
    assert destination.result(1, 16, run=2).decode() == counting.word()
    assert (kind == "fake") or second.pid == first.pid
    (images,) = (two.saved(node) / ".criu" for node in ("destination",))
    assert {stat.S_IMODE(path.stat().st_mode) for path in images.iterdir()} == {0o600}, "it is the memory of a program"


def test_a_program_that_moves_to_a_node_without_criu_begins_anew_and_says_so(
    fake: Plan, two: Two, tmp_path: Path, counting: Counting
) -> None:
    _, second = moved(two, counting, tmp_path)
    lost = "the work of run 1, which CRIU saved on source, is lost, and the command starts again: "
    assert second.restored == f"{lost}criu is off on this node"


# The folder of the run that was dumped.


def test_a_program_whose_first_folder_is_gone_finds_that_of_its_run_there(
    kind: str, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    shutil.rmtree(run_directory(state, 1))
    assert begin(scheduler, counting, run=2).restored.startswith("CRIU restored run 1")
    counting.advances()
    assert suspended(scheduler, counting, 2).yielded
    begin(scheduler, counting, run=3)
    counting.advances()
    counting.end()
    assert scheduler.exited(1, 3).exit_code == 3
    assert scheduler.result(1, 16, run=3).decode() == counting.word()


def test_the_folder_that_a_restored_program_uses_does_not_expire(
    fake: Plan, agent: Start, scheduler: FakeScheduler, state: Path, counting: Counting
) -> None:
    one = agent("--criu", "on")
    begin(scheduler, counting)
    assert suspended(scheduler, counting).yielded
    begin(scheduler, counting, run=2)
    home = run_directory(state, 1)
    one.kill()
    long_ago = time.time() - 10 * 86400
    old = home.parent / "9.1"
    old.mkdir()
    for path in (home / "exit.json", old):
        os.utime(path, (long_ago, long_ago))
    # So that the spool does not answer for the run that was dumped: it forgets what ended long ago.
    with contextlib.closing(sqlite3.connect(state / "spool.db")) as spool, spool:
        spool.execute("DELETE FROM run WHERE run = 1")
    agent("--criu", "on", "--keep-runs", "1")
    until(lambda: not old.exists())
    assert home.exists()


def _running(state: Path, action: str) -> list[int]:
    """CRIU at work for a run of this agent."""
    found = []
    for pid in of_state(state):
        with contextlib.suppress(OSError):  # it has ended since
            if action.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


# Whether it can be used.


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"version": "Version: 3.17.1"}, "CRIU is too old (Version: 3.17.1): install CRIU 4.2 or later"),
        ({"version": "nonsense"}, "CRIU is too old (nonsense): install CRIU 4.2 or later"),
        ({"fail": {"check": "no vdso"}}, "CRIU does not work on this kernel (no vdso): run `criu check`, and set criu to off"),
        ({}, ""),
    ],
)
async def test_what_cannot_be_used_is_said(plan: Plan, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], why: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    plan(**how)
    assert await criu.unusable(plan.program) == why


async def test_an_agent_that_may_not_use_it_says_so(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert await criu.unusable(plan.program) == "the agent may not use CRIU: run it as root (allow_root)"


async def test_a_criu_that_is_not_there_is_said() -> None:
    assert "CRIU is not installed" in await criu.unusable("/nowhere/criu")


def test_what_was_dumped_in_part_is_no_dump(tmp_path: Path) -> None:
    assert read_image(tmp_path) is None
    (tmp_path / "ebb.json").write_text("{}")
    assert read_image(tmp_path) is None
