"""Runs that are warm at one node while they still run at another: real agents, launchers and interpreters."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import job_pb2

from node_agent.run_state.model import LaunchSpec, RunKey
from node_agent.runs.warming import warm_launch
from tests.agent.conftest import AgentProcess, alive, until
from tests.agent.fake_scheduler import FakeScheduler, gang

Start = Callable[..., AgentProcess]

SCRIPT = """
import os, sys
print("began", os.getpid(), *sys.argv[1:], os.environ.get("MASTER_ADDR"), "wave" in sys.modules, flush=True)
"""


def launch(*command: str, **more: object) -> pb.Launch:
    return pb.Launch(spec=job_pb2.JobSpec(command=command), user="u", **more)  # type: ignore[arg-type]


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def output(scheduler: FakeScheduler, job: int = 1, run: int = 2) -> list[str]:
    return Path(scheduler.started(job, run).log_path).read_text().split()


def test_a_run_that_is_warm_begins_in_the_process_that_waits(
    agent: Start, scheduler: FakeScheduler, state: Path, script: str
) -> None:
    one = agent()
    scheduler.connected()
    wanted = launch(sys.executable, script, "a")
    scheduler.desire(1, 2, 0, warming=wanted)
    assert scheduler.ready(1, 2).port == 0
    assert "starts from the beginning" not in one.log.read_text(), "its checkpoints are still to come"
    assert len(scheduler.of(1, 2)) == 1, "it is ready, and has not begun"
    (warm,) = state.glob("runs/*/1.2/warm/warmed")
    log = warm.parents[1] / "output.log"
    assert log.read_text() == ""
    scheduler.desire(1, 2, 0, running=wanted)
    started = scheduler.started(1, 2)
    assert scheduler.exited(1, 2).exit_code == 0
    assert output(scheduler) == ["began", str(started.pid), "a", "None", "False"]
    assert Path(started.program).name.startswith("python")


def test_a_command_that_is_no_script_of_python_starts_cold(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    wanted = launch("sh", "-c", "echo began")
    scheduler.desire(1, 2, 0, warming=wanted)
    scheduler.ready(1, 2)
    assert not list(state.glob("runs/*/1.2/warm"))
    scheduler.desire(1, 2, 0, running=wanted)
    assert scheduler.exited(1, 2).exit_code == 0
    assert output(scheduler) == ["began"]


@pytest.mark.parametrize("cold", [False, True])
def test_one_that_is_not_needed_is_gone_without_having_begun(
    agent: Start, scheduler: FakeScheduler, state: Path, script: str, cold: bool
) -> None:
    agent()
    scheduler.connected()
    scheduler.desire(1, 2, 0, warming=launch(*(("true",) if cold else (sys.executable, script))))
    scheduler.ready(1, 2)
    scheduler.stop(1, 0, run=2, reason=pb.STOP_REASON_UNCLAIMED)
    scheduler.exited(1, 2)
    assert all(report.WhichOneof("event") != "started" for report in scheduler.of(1, 2))
    assert not [log for log in state.glob("runs/*/1.2/output.log") if log.read_text()]


@pytest.mark.parametrize("when", ["warm", "begun"])
def test_an_agent_that_is_killed_finds_it_again(agent: Start, scheduler: FakeScheduler, script: str, when: str) -> None:
    first = agent()
    scheduler.connected()
    wanted = launch(sys.executable, script)
    scheduler.desire(1, 2, 0, warming=wanted)
    scheduler.ready(1, 2)
    first.kill()
    if when == "warm":
        agent()
        scheduler.connected(2)
        scheduler.desire(1, 2, 0, warming=wanted)  # the same word again
        scheduler.desire(1, 2, 0, running=wanted)
    else:
        scheduler.on_hello = lambda: None
        agent()
        scheduler.connected(2)
        scheduler.desire(1, 2, 0, running=wanted)
    assert scheduler.exited(1, 2).exit_code == 0
    assert output(scheduler)[0] == "began"
    assert Path(scheduler.started(1, 2).log_path).read_text().count("began") == 1


def test_an_agent_that_is_killed_while_it_has_it_begin(
    agent: Start, scheduler: FakeScheduler, state: Path, script: str
) -> None:
    """The word that it may begin is in the spool, and the process has not heard of it."""
    first = agent()
    scheduler.connected()
    wanted = launch(sys.executable, script)
    scheduler.desire(1, 2, 0, warming=wanted)
    scheduler.ready(1, 2)
    (warm,) = state.glob("runs/*/1.2/warm")
    away = warm.parent.rename(warm.parent.with_name("away"))
    warm.parent.touch()  # where the word goes
    scheduler.desire(1, 2, 0, running=wanted)
    until(lambda: "NODE FAULT" in first.log.read_text())
    first.kill()
    warm.parent.unlink()
    away.rename(warm.parent)
    agent()
    assert scheduler.exited(1, 2).exit_code == 0
    assert output(scheduler)[0] == "began"


def test_a_process_that_ends_while_it_is_warm_ends_the_run(
    agent: Start, scheduler: FakeScheduler, state: Path, script: str
) -> None:
    agent()
    scheduler.connected()
    scheduler.desire(1, 2, 0, warming=launch(sys.executable, script))
    scheduler.ready(1, 2)
    import json
    import os
    import signal

    (process,) = state.glob("runs/*/1.2/process.json")
    pid = json.loads(process.read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert scheduler.exited(1, 2).exit_signal == 9
    assert not alive(pid)


def test_a_gang_that_is_warm_learns_where_it_meets(agent: Start, scheduler: FakeScheduler, script: str) -> None:
    agent()
    scheduler.connected()
    scheduler.desire(1, 2, 0, warming=launch(sys.executable, script, gang=gang(0)))
    ready = scheduler.ready(1, 2)
    assert ready.port
    scheduler.desire(1, 2, 0, running=launch(sys.executable, script, gang=gang(0, go=("n1.example", ready.port))))
    assert scheduler.exited(1, 2).exit_code == 0
    assert output(scheduler)[2] == "n1.example"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("python", "train.py", "-m"), ("python", "H/ebb_hook/warm.py", "train.py", "-m")),
        (("/usr/bin/python3.11", "-u", "-Wx", "-X", "y", "t.py"), ("-u", "-Wx", "-X", "y", "H/ebb_hook/warm.py", "t.py")),
        (("python3", "-OO", "-m", "pack", "-v"), ("-OO", "H/ebb_hook/warm.py", "-m", "pack", "-v")),
        (("python", "-c", "print()"), None),
        (("python",), None),
        (("python", "-"), None),
        (("python", "-i", "t.py"), None),
        (("python", "-m"), None),
        (("torchrun", "t.py"), None),
        ((), None),
    ],
)
def test_which_commands_can_be_warmed(command: tuple[str, ...], expected: tuple[str, ...] | None) -> None:
    warmed = warm_launch(LaunchSpec(RunKey(1, 1), command), "H")
    if expected is None:
        assert warmed is None
    else:
        assert warmed is not None
        assert warmed.command[-len(expected) :] == expected
    assert warm_launch(LaunchSpec(RunKey(1, 1), command), "") is None, "without the hook nothing is warmed"
    off = LaunchSpec(RunKey(1, 1), command, environment=(("NO_EBB_WARM", "1"),))
    assert warm_launch(off, "H") is None
