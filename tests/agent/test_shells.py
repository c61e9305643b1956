"""Work behind a shell: SIGTERM ends the shell at once, and what it has started has the grace period all the same."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from node_agent.processes.process_groups import group_members
from tests.agent.conftest import AgentProcess, alive, of_state, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler

Start = Callable[..., AgentProcess]

BEHIND = ("/bin/sh", "-c", 'sh -c "$WORK"; echo next')
LOOP = "touch ready; while :; do sleep 0.02; done"
SAVES = f"trap 'until [ -e go ]; do sleep 0.02; done; touch $EBB_YIELD_FILE; exit 143' TERM; {LOOP}"
DEFIES = f"trap '' TERM; {LOOP}"
BY_HAND = 'sh -c "$WORK" & trap "exit 143" TERM; wait'


def behind(scheduler: FakeScheduler, state: Path, work: str, command: tuple[str, ...] = BEHIND) -> int:
    """Starts it and waits until it is ready; the pid of its leader."""
    scheduler.connected()
    scheduler.start(1, *command, environment={"WORK": work})
    until((run_directory(state, 1) / "ready").exists)
    return scheduler.started(1).pid


@pytest.mark.parametrize("command", [BEHIND, ("/bin/sh", "-c", BY_HAND)])
def test_it_saves_in_its_grace_period(agent: Start, scheduler: FakeScheduler, state: Path, command: tuple[str, ...]) -> None:
    agent()
    pid = behind(scheduler, state, SAVES, command)
    scheduler.stop(1, 30)
    until(lambda: not alive(pid))
    scheduler.start(2, "true")
    scheduler.exited(2)
    assert group_members(pid), "it is saving"
    assert len(scheduler.of(1)) == 1
    (run_directory(state, 1) / "go").touch()
    exited = scheduler.exited(1)
    assert exited.yielded
    assert signal.SIGTERM in (exited.exit_signal, exited.exit_code - 128)
    assert group_members(pid) == []


def test_at_the_deadline_it_is_killed(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    pid = behind(scheduler, state, DEFIES)
    scheduler.stop(1, 1.0)
    until(lambda: not alive(pid))
    exited = scheduler.exited(1)
    assert (exited.exit_signal, exited.yielded) == (signal.SIGTERM, False)
    assert group_members(pid) == []


@pytest.mark.parametrize("launcher_too", [False, True])
def test_an_agent_that_comes_after_the_shell_has_left_waits_for_it_too(
    agent: Start, scheduler: FakeScheduler, state: Path, launcher_too: bool
) -> None:
    first = agent()
    pid = behind(scheduler, state, SAVES)
    (launcher,) = (p for p in of_state(state) if group_members(p) == [p] and p not in (pid, first.process.pid))
    scheduler.stop(1, 30)
    until(lambda: not alive(pid))
    first.kill()
    if launcher_too:
        os.kill(launcher, signal.SIGKILL)
    agent()
    assert [run.phase for run in scheduler.connected(2).runs] == [3]
    assert group_members(pid), "it is saving"
    (run_directory(state, 1) / "go").touch()
    assert scheduler.exited(1).yielded


def test_after_the_deadline_a_new_agent_kills_it(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    pid = behind(scheduler, state, DEFIES)
    scheduler.stop(1, 2.0)
    until(lambda: not alive(pid))
    first.kill()
    agent()
    scheduler.exited(1)
    assert group_members(pid) == []


def test_what_is_left_by_a_leader_that_has_saved_is_killed_at_once(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    leaves = f"sh -c \"trap '' TERM; while :; do sleep 0.02; done\" & trap 'touch $EBB_YIELD_FILE; exit 143' TERM; {LOOP}"
    pid = behind(scheduler, state, "", ("/bin/sh", "-c", leaves))
    scheduler.stop(1, 3600)
    assert scheduler.exited(1).yielded
    assert group_members(pid) == []


def test_nobody_is_waited_for_where_ebb_has_asked_for_nothing(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    pid = behind(scheduler, state, DEFIES)
    os.kill(pid, signal.SIGTERM)
    assert scheduler.exited(1).exit_signal == signal.SIGTERM
    assert group_members(pid) == []


def test_an_agent_that_stops_its_jobs_stops_these_too(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    one = agent("--stop-jobs-on-exit")
    pid = behind(scheduler, state, DEFIES)
    scheduler.stop(1, 3600)
    until(lambda: not alive(pid))
    one.terminate()
    until(lambda: not group_members(pid))


# The leader saves, and has a worker, which has a child of its own; beside them a helper that an earlier shell has left.
SAVER = """
echo $$ > $EBB_SAVERS_FILE
worker='trap "touch told-$1; exit" TERM; touch here-$1; while :; do sleep 0.02; done'
sh -c "sh -c '$worker' - grandchild & $worker" - worker &
until [ -e here-worker ] && [ -e here-grandchild ]; do sleep 0.02; done
trap 'cp told-* $EBB_CHECKPOINT_DIR; touch $EBB_YIELD_FILE; exit 143' TERM
touch ready
while :; do sleep 0.02; done
"""


def test_what_a_saver_has_started_is_its_own_to_end(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    """Behind a shell, which is told and leaves."""
    agent()
    pid = behind(scheduler, state, SAVER)
    scheduler.stop(1, 30)
    assert scheduler.exited(1).yielded
    assert not list(run_directory(state, 1).glob("told-*"))
    assert group_members(pid) == []


def test_where_nobody_has_said_so_everybody_is_told(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    said_nothing = SAVER.replace("echo $$ > $EBB_SAVERS_FILE", "echo 1 nonsense > $EBB_SAVERS_FILE")
    behind(scheduler, state, said_nothing.replace("touch $EBB_YIELD_FILE; ", ""))
    scheduler.stop(1, 30)
    scheduler.exited(1)
    assert {path.name for path in run_directory(state, 1).glob("told-*")} == {"told-worker", "told-grandchild"}
