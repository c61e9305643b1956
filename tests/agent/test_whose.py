"""A state directory is one node's, and a node's runs live under one state directory: what would mix them is refused."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from node_agent.processes import stray_processes
from node_agent.processes.process_groups import stat_fields
from node_agent.spool import identity
from tests import preloaded
from tests.agent.conftest import AgentProcess, alive, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler

Start = Callable[..., AgentProcess]
HELD = "until [ -e go ]; do sleep 0.02; done; exit 3"


@contextmanager
def beside(state: Path, scheduler: FakeScheduler, *flags: str) -> Iterator[AgentProcess]:
    """An agent of n1 with another state directory."""
    agent = AgentProcess(state, scheduler.address, *flags, start=preloaded.start)
    try:
        yield agent
    finally:
        agent.kill()


def refused(agent: AgentProcess) -> str:
    """Why it did not begin."""
    assert agent.process.wait(20) == 1
    return agent.log.read_text()


def acknowledged(scheduler: FakeScheduler, sequence: int) -> None:
    """Waits until the agent has heard that: what it says when it connects anew."""
    scheduler.wait(lambda: scheduler.committed == sequence)
    seen = len(scheduler.hellos)
    scheduler.hang_up()
    assert scheduler.connected(seen + 1).acknowledged == sequence


def test_a_node_is_not_renamed_while_it_has_runs(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    boot = scheduler.connected().boot_id
    scheduler.start(1, "/bin/sh", "-c", HELD)
    pid = scheduler.started(1).pid
    acknowledged(scheduler, 1)
    first.kill()
    said = refused(agent(node="n2"))
    assert f"The state directory {state} is node n1's: 1 of its runs are not over, and of 0 the scheduler" in said
    assert "Start the agent as n1 (--node n1)" in said
    assert alive(pid)
    assert len(scheduler.hellos) == 2

    scheduler.acknowledging = False
    again = agent()
    hello = scheduler.connected(3)
    assert (hello.node, hello.boot_id, len(hello.runs)) == ("n1", boot, 1)
    (run_directory(state, 1) / "go").touch()
    assert scheduler.exited(1).exit_code == 3
    again.kill()
    assert "0 of its runs are not over, and of 1 the scheduler" in refused(agent(node="n2"))

    scheduler.acknowledging = True
    last = agent()
    acknowledged(scheduler, 2)
    assert last.terminate() == 0
    seen = len(scheduler.hellos)
    agent(node="n2")
    hello = scheduler.connected(seen + 1)
    assert (hello.node, hello.cluster_id, hello.acknowledged, list(hello.runs)) == ("n2", "c1", 0, [])
    assert hello.boot_id != boot
    scheduler.start(2, "true")
    assert scheduler.exited(2).exit_code == 0


def test_who_forgets_its_cluster_may_change_its_name(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    scheduler.connected()
    scheduler.acknowledging = False
    scheduler.start(1, "true")
    scheduler.exited(1)
    first.kill()
    agent("--forget-cluster", node="n2")
    hello = scheduler.connected(2)
    assert (hello.node, hello.cluster_id, list(hello.runs)) == ("n2", "", [])
    held = identity.read(state / identity.FILE)
    assert held is not None
    assert held.node == "n2"


def test_runs_of_the_node_under_another_state_directory(
    agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path
) -> None:
    shared, other = ("--checkpoints", str(tmp_path / "shared")), tmp_path / "other"
    first = agent(*shared)
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", HELD)
    pid = scheduler.started(1).pid
    with beside(other, scheduler, *shared) as twin:  # while the first one is there
        said = refused(twin)
    assert f"Runs of node n1 live under another state directory: {state} (1.1). Start the agent with that --state" in said
    first.kill()
    with beside(other, scheduler, *shared) as successor:
        assert "Runs of node n1 live under another" in refused(successor)
    assert alive(pid)
    assert len(scheduler.hellos) == 1, "the scheduler has heard of neither"

    with closing(FakeScheduler("c2")) as another, beside(other, another, "--checkpoints", str(tmp_path / "of c2")):
        another.connected()
    agent(*shared)
    assert [run.job_id for run in scheduler.connected(2).runs] == [1]
    (run_directory(state, 1) / "go").touch()
    scheduler.exited(1)
    with beside(tmp_path / "third", scheduler, *shared):
        scheduler.connected(3)


def test_whose_runs_are_meant(agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path) -> None:
    """A directory may have been moved, or be reached by another name; a process may be gone before it is read."""
    here = agent("--checkpoints", str(tmp_path / "shared"))
    scheduler.connected()
    scheduler.start(1, "sleep", "1000")
    pid = scheduler.started(1).pid
    other = tmp_path / "other"
    other.mkdir()
    found = {state: {"1.1"}}
    assert stray_processes.find_elsewhere(other, "n1", tmp_path / "shared") == found
    (tmp_path / "link").symlink_to(tmp_path)
    assert stray_processes.find_elsewhere(other, "n1", tmp_path / "link" / "shared") == found
    assert stray_processes.find_elsewhere(tmp_path / "link" / "state", "n1", tmp_path / "shared") == {}
    assert stray_processes.find_elsewhere(other, "n2", tmp_path / "shared") == {}
    assert stray_processes.find_elsewhere(other, "n1", tmp_path) == {}
    os.kill(pid, signal.SIGSTOP)
    here.process.send_signal(signal.SIGSTOP)  # else it may write into its directory while that has another name
    until(lambda: stat_fields(here.process.pid)[0] == "T")
    moved = state.rename(tmp_path / "moved")
    assert stray_processes.find_elsewhere(moved, "n1", tmp_path / "shared") == {}
    moved.rename(state)
    here.process.send_signal(signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    scheduler.exited(1)
    assert stray_processes.find_elsewhere(other, "n1", tmp_path / "shared") == {}
