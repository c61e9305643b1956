"""A state directory is one node's, and a node's runs live under one state directory: what would mix them is refused."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from node_agent.errors import NodeInUse
from node_agent.node_lock import lock_node
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
    assert f"Another agent (pid {first.process.pid}) serves node n1 for the scheduler at {scheduler.address} on" in said
    first.kill()
    with beside(other, scheduler, *shared) as successor:
        said = refused(successor)
    assert f"Runs of node n1 live under another state directory: {state} (1.1). Start the agent with that --state" in said
    assert alive(pid)
    assert len(scheduler.hellos) == 1, "the scheduler has heard of neither"

    with closing(FakeScheduler("c2")) as another, beside(other, another, "--checkpoints", str(tmp_path / "of c2")):
        another.connected()
    last = agent(*shared)
    assert [run.job_id for run in scheduler.connected(2).runs] == [1]
    (run_directory(state, 1) / "go").touch()
    scheduler.exited(1)
    last.kill()
    with beside(tmp_path / "third", scheduler, *shared):
        scheduler.connected(3)


def test_devices_of_runs_under_another_state_directory_are_not_free(
    agent: Start, scheduler: FakeScheduler, state: Path, tmp_path: Path
) -> None:
    """Neither the new state directory nor the folder of its checkpoints knows anything of them."""
    first = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", HELD, devices=[2, 3])
    pid = scheduler.started(1).pid
    first.kill()
    with beside(tmp_path / "other", scheduler):
        hello = scheduler.connected(2)
        assert [device.index for device in hello.devices if device.fault] == [2, 3]
        assert f"run 1.1 of the state directory {state} is alive (process group {pid})" in hello.devices[2].fault
        assert alive(pid)
        (run_directory(state, 1) / "go").touch()
        until(lambda: not alive(pid))
        scheduler.wait(lambda: [each.fault for each in scheduler.observations[-1].devices] == [""] * 8)


@pytest.mark.parametrize(
    "lose", [shutil.rmtree, lambda state: state.rename(state.with_name("moved"))], ids=["removed", "moved"]
)
def test_a_state_directory_that_is_gone(
    agent: Start, scheduler: FakeScheduler, state: Path, lose: Callable[[Path], object]
) -> None:
    """The processes that its launcher has started are killed before the scheduler hears of the node."""
    first = agent()
    scheduler.connected()
    scheduler.start(1, "sleep", "1000")
    pid = scheduler.started(1).pid
    first.kill()
    lose(state)
    agent()
    assert not any(device.fault for device in scheduler.connected(2).devices)
    assert not alive(pid)


async def test_the_lock_of_a_node() -> None:
    """It is released with the process or the block that holds it, and another node or scheduler has another one."""
    async with lock_node("a:1,b:1", "n1"):
        for scheduler, node in (("b:1", "n2"), ("c:1", "n1")):
            async with lock_node(scheduler, node, wait=0):
                pass
        with pytest.raises(NodeInUse, match=rf"pid {os.getpid()}\) serves node n1 for the scheduler at B:1,c:1"):
            async with lock_node("B:1,c:1", "n1", wait=0.1):
                raise AssertionError
        async with lock_node("c:1", "n1", wait=0):  # what the refused one held already
            pass
    async with lock_node("a:1", "n1", wait=0):
        pass


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
