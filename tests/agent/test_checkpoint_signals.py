"""Programs that save on another signal than SIGTERM, or are saved by a command: whatever else happens meanwhile."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb

from node_agent.checkpoints.save_requests import sigterm_at
from node_agent.run_state.model import LaunchSpec, RunKey
from tests.agent.conftest import AgentProcess, alive, of_state, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler

Start = Callable[..., AgentProcess]

SAVES = "trap 'echo saved; exit 0' USR1; touch ready; while :; do sleep 0.02; done"
EXITS = "trap 'exit 7' TERM; touch ready; while :; do sleep 0.02; done"
HEARS = "trap 'touch heard' USR1; trap 'touch terminated; exit 7' TERM; touch ready; while :; do sleep 0.02; done"
FORKS = """
import os, signal, time
def save(*_):
    open(f"saved-{os.getpid() == parent}", "w").close()
    os._exit(0)
parent = os.getpid()
signal.signal(signal.SIGUSR1, save)
if os.fork() == 0:
    open("ready", "w").close()
time.sleep(60)
"""


def start(scheduler: FakeScheduler, state: Path, *command: str, **spec: str) -> Path:
    """Of job 1, once it is ready; the folder of its run."""
    scheduler.connected()
    scheduler.start(1, *command, **spec)
    folder = run_directory(state, 1)
    until((folder / "ready").exists)
    scheduler.started(1)
    return folder


def ended(scheduler: FakeScheduler) -> tuple[int, int, bool, str]:
    how = scheduler.exited(1)
    return how.exit_code, how.exit_signal, how.yielded, how.checkpoint


# Signals.


@pytest.mark.parametrize(
    ("said", "grace", "due"),
    [("USR1", 100.0, 90.0), ("USR1", 1000.0, 970.0), ("USR1@60", 100.0, 60.0), ("USR1@60", 20.0, 20.0)],
)
def test_when_sigterm_follows(said: str, grace: float, due: float) -> None:
    assert sigterm_at(LaunchSpec(RunKey(1, 1), ("true",), checkpoint_signal=said), 5.0, 5.0 + grace) == 5.0 + due


def test_the_program_gets_its_signal_at_once_and_no_sigterm(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    folder = start(scheduler, state, "/bin/sh", "-c", SAVES, checkpoint_signal="USR1")
    scheduler.stop(1, 60)
    assert ended(scheduler) == (0, 0, False, "it was sent SIGUSR1")
    assert scheduler.exited(1).told, "so that the scheduler takes its 0 for a stop"
    assert (folder / "output.log").read_text() == "saved\n"


def test_a_wrapper_that_knows_nothing_of_the_signal_outlives_it(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    start(scheduler, state, "/bin/sh", "-c", f"sh -c '{SAVES.replace(chr(39), chr(34))}'; echo next", checkpoint_signal="USR1")
    scheduler.stop(1, 60)
    assert ended(scheduler) == (0, 0, False, "it was sent SIGUSR1")


def test_workers_that_inherit_the_handler_do_not_save_too(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    folder = start(scheduler, state, sys.executable, "-c", FORKS, checkpoint_signal="USR1")
    scheduler.stop(1, 60)
    assert ended(scheduler)[:2] == (0, 0)
    assert [path.name for path in folder.glob("saved-*")] == ["saved-True"]


def test_sigterm_follows_and_then_the_kill(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    folder = start(scheduler, state, "/bin/sh", "-c", HEARS, checkpoint_signal="USR1@1")
    scheduler.stop(1, 60)
    until((folder / "heard").exists)
    assert not (folder / "terminated").exists()
    code, _, _, said = ended(scheduler)
    assert code == 7
    assert said.startswith("it did not exit within 1.0 s of SIGUSR1; SIGTERM followed")


def test_where_nobody_handles_the_signal_sigterm_comes_at_once(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    start(
        scheduler,
        state,
        "/bin/sh",
        "-c",
        "trap 'exit 7' TERM; touch ready; while :; do sleep 0.02; done",
        checkpoint_signal="HUP",
    )
    scheduler.stop(1, 60)
    assert ended(scheduler) == (7, 0, False, "no process of it handles SIGHUP; SIGTERM was sent at once")


def test_who_cancels_wants_nothing_saved(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    folder = start(scheduler, state, "/bin/sh", "-c", HEARS, checkpoint_signal="USR1")
    scheduler.stop(1, 60, reason=pb.STOP_REASON_CANCELLED)
    assert ended(scheduler) == (7, 0, False, "")
    assert not (folder / "heard").exists()


def test_an_agent_that_is_killed_meanwhile_does_not_signal_twice_and_goes_on(
    agent: Start, scheduler: FakeScheduler, state: Path
) -> None:
    first = agent()
    counts = "trap 'echo heard' USR1; trap 'exit 7' TERM; touch ready; while :; do sleep 0.02; done"
    folder = start(scheduler, state, "/bin/sh", "-c", counts, checkpoint_signal="USR1@2")
    scheduler.stop(1, 60)
    until((folder / "output.log").read_text)
    until(lambda: "SIGUSR1 to 1 of" in first.log.read_text())  # which it says once it has recorded it
    first.kill()
    agent()
    scheduler.connected(2)
    assert ended(scheduler)[0] == 7, "SIGTERM came from the second agent"
    assert (folder / "output.log").read_text().count("heard") == 1


# Commands.


def test_a_command_saves_beside_the_program(agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path) -> None:
    agent()
    variables = "for $A on $CUDA_VISIBLE_DEVICES, unbuffered: $PYTHONUNBUFFERED"
    command = f'echo "saving $EBB_PID in $(pwd) {variables}"; echo state >"$EBB_CHECKPOINT_DIR/state"'
    work = tmp_path / "work"
    work.mkdir()
    scheduler.connected()
    given = {"working_directory": str(work), "environment": {"A": "b"}, "checkpoint_command": command}
    scheduler.start(1, "sleep", "60", devices=(0,), **given)
    pid = scheduler.started(1).pid
    scheduler.stop(1, 60)
    code, signum, yielded, said = ended(scheduler)
    assert (code, signum, yielded) == (0, signal.SIGTERM, True)
    assert said.startswith("its checkpoint command saved its work in ")
    assert Path(scheduler.started(1).log_path).read_text() == f"saving {pid} in {work} for b on , unbuffered: 1\n"
    assert (state / "checkpoints/c1/job-1/state").read_text() == "state\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo no room; exit 3", "its checkpoint command exited with code 3; SIGTERM followed"),
        ("kill -9 $$", "its checkpoint command was ended by SIGKILL; SIGTERM followed"),
    ],
)
def test_a_command_that_fails_is_followed_by_sigterm(
    agent: Start, scheduler: FakeScheduler, state: Path, command: str, said: str
) -> None:
    agent()
    start(scheduler, state, "/bin/sh", "-c", HEARS, checkpoint_command=command)
    scheduler.stop(1, 60)
    assert ended(scheduler) == (7, 0, False, said)


def test_a_command_that_takes_too_long_is_killed(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    folder = start(scheduler, state, "/bin/sh", "-c", HEARS, checkpoint_command="echo $$ >command; exec sleep 60")
    scheduler.stop(1, 1.5)
    pid = int(until((folder / "command").read_text) if until((folder / "command").exists) else 0)
    code, _, yielded, said = ended(scheduler)
    assert (code, yielded) == (7, False)
    assert said.startswith("its checkpoint command did not end within 1.")
    until(lambda: not alive(pid))


def test_a_program_that_exits_meanwhile_ends_the_command(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    command = "echo $$ >command; touch asked; exec sleep 60"
    ends = "touch ready; until [ -e asked ]; do sleep 0.02; done; exit 0"
    folder = start(scheduler, state, "/bin/sh", "-c", ends, checkpoint_command=command)
    scheduler.stop(1, 60)
    assert ended(scheduler) == (0, 0, False, "it exited before its checkpoint command did")
    until(lambda: not alive(int((folder / "command").read_text())))


@pytest.mark.parametrize("launcher_too", [False, True])
@pytest.mark.parametrize("ends_meanwhile", [False, True])
def test_an_agent_that_is_killed_meanwhile_learns_that_the_command_saved(
    agent: Start, scheduler: FakeScheduler, state: Path, launcher_too: bool, ends_meanwhile: bool
) -> None:
    first = agent()
    command = "echo begun >>begun; until [ -e go ]; do sleep 0.02; done"
    folder = start(scheduler, state, "/bin/sh", "-c", HEARS, checkpoint_command=command)
    (launcher,) = (pid for pid in of_state(state) if Path(f"/proc/{pid}/cmdline").read_bytes().find(b"launcher.py") > 0)
    scheduler.stop(1, 60)
    until((folder / "begun").exists)
    first.kill()
    if launcher_too:
        os.kill(launcher, signal.SIGKILL)
    if ends_meanwhile:
        (folder / "go").touch()
        if not launcher_too:
            until((folder / "checkpoint-command" / "exit.json").exists)
    agent()
    scheduler.connected(2)
    (folder / "go").touch()
    code, _, yielded, said = ended(scheduler)
    assert code == (0 if launcher_too else 7)
    assert (folder / "begun").read_text() == "begun\n", "it ran once"
    if launcher_too:  # nobody is left who could know how it ended
        assert (yielded, said) == (False, "its checkpoint command ended, and nobody knows how; SIGTERM followed")
    else:
        assert yielded


def test_a_command_that_an_agent_left_behind_ends_with_its_run(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    command = "echo $$ >command; touch begun; exec sleep 60"
    folder = start(scheduler, state, "/bin/sh", "-c", HEARS, checkpoint_command=command)
    pid = scheduler.started(1).pid
    scheduler.stop(1, 60)
    until((folder / "begun").exists)
    first.kill()
    os.kill(pid, signal.SIGKILL)
    agent()
    scheduler.connected(2)
    assert ended(scheduler)[1] == signal.SIGKILL
    until(lambda: not alive(int((folder / "command").read_text())))


def test_without_a_grace_period_there_is_no_time_to_save(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    folder = start(scheduler, state, "/bin/sh", "-c", HEARS, checkpoint_command="touch begun")
    scheduler.stop(1, 0)
    assert ended(scheduler) == (0, signal.SIGKILL, False, "")
    assert not (folder / "begun").exists()
