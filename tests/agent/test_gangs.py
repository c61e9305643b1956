"""Tasks of gangs on one node: made ready, told to go or to leave, over every death of the agent."""

import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ebb.agent.v1 import agent_link_pb2 as pb

from node_agent.processes.process_groups import group_members
from node_agent.run_state.model import RunKey
from node_agent.transport import convert
from node_agent.transport.messages import LogRequest
from tests.agent.conftest import ROOT, AgentProcess, block_runs, of_state, run_directory, until
from tests.agent.fake_scheduler import FakeScheduler, gang

Start = Callable[..., AgentProcess]

LISTENS = (
    sys.executable,
    "-c",
    "import os, socket; socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))); print('once')",
)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
        return True


def kinds(scheduler: FakeScheduler, job: int, task: int = 0) -> list[str | None]:
    return [report.WhichOneof("event") for report in scheduler.of(job, task=task)]


def test_two_tasks_get_ready_and_go(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent("--address", "localhost")
    scheduler.connected()
    for _ in range(2):
        scheduler.start(1, *LISTENS, gang=gang(0))
        scheduler.start(1, "/bin/sh", "-c", "env; pwd", gang=gang(1), array_index=4)
    first, second = scheduler.ready(1), scheduler.ready(1, task=1)
    assert (first.address, second.address, second.port) == ("localhost", "localhost", 0)
    assert not is_free(first.port)
    assert [process for process in of_state(state) if len(group_members(process)) != 1] == []
    scheduler.hang_up()
    assert {(r.job_id, r.run, r.task, r.phase, r.pid) for r in scheduler.connected(2).runs} == {
        (1, 1, 0, 5, 0),
        (1, 1, 1, 5, 0),
    }
    go = ("127.0.0.1", first.port)
    for _ in range(2):
        scheduler.start(1, "ignored", gang=pb.Gang(rank=0, master_address=go[0], master_port=go[1]))
        scheduler.start(1, "ignored", gang=pb.Gang(rank=1, master_address=go[0], master_port=go[1]))
    assert scheduler.exited(1).exit_code == scheduler.exited(1, task=1).exit_code == 0
    assert kinds(scheduler, 1) == kinds(scheduler, 1, task=1) == ["ready", "started", "exited"]
    assert Path(scheduler.started(1).log_path).read_text() == "once\n"
    log = Path(scheduler.started(1, task=1).log_path)
    assert log == state / "runs" / log.parent.parent.name / "1.1.1" / "output.log"
    for line in (
        "RANK=1",
        "WORLD_SIZE=3",
        "LOCAL_RANK=1",
        "LOCAL_WORLD_SIZE=2",
        "EBB_NODE_TASK=1",
        "EBB_NODE_TASKS=2",
        "NODE_RANK=0",
        "MASTER_ADDR=127.0.0.1",
        f"MASTER_PORT={first.port}",
        "EBB_NODES=n1,n2",
        "EBB_TASK=1",
        "EBB_ARRAY_INDEX=4",
        f"EBB_CHECKPOINT_DIR={state}/checkpoints/c1/job-1",
        str(log.parent),
    ):
        assert line in log.read_text().splitlines()


def test_a_task_that_is_ready_ends_at_once_when_it_is_stopped(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "true", gang=gang(0))
    port = scheduler.ready(1).port
    scheduler.stop(1, 30, reason=pb.STOP_REASON_GANG)
    exited = scheduler.exited(1)
    assert (exited.yielded, exited.exit_code, exited.exit_signal) == (True, 0, 0)
    assert is_free(port)
    scheduler.start(1, "true", gang=gang(0, go=("127.0.0.1", port)))
    scheduler.start(2, "true")
    scheduler.exited(2)
    assert kinds(scheduler, 1) == ["ready", "exited"]


def test_go_without_an_earlier_order_does_both(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", 'exit "$MASTER_PORT"', gang=gang(0, go=("127.0.0.1", 77)))
    assert scheduler.exited(1).exit_code == 77
    assert kinds(scheduler, 1) == ["started", "exited"]


def test_killed_before_it_was_ready(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    scheduler.connected()
    block_runs(state)
    for rank in (0, 1):
        scheduler.start(1, *LISTENS, gang=gang(rank))
    until(lambda: first.log.read_text().count("NODE FAULT") >= 2)
    scheduler.stop(1, 30, task=1)
    assert scheduler.exited(1, task=1).yielded  # it was not ready either
    scheduler.hang_up()
    assert {(r.task, r.phase) for r in scheduler.connected(2).runs} == {(0, pb.RUN_PHASE_PREPARING)}
    first.kill()
    (state / "runs").unlink()
    agent()
    scheduler.connected(3)
    port = scheduler.ready(1).port
    scheduler.start(1, *LISTENS, gang=gang(0, go=("127.0.0.1", port)))
    assert scheduler.exited(1).exit_code == 0
    assert kinds(scheduler, 1) == ["ready", "started", "exited"]
    assert kinds(scheduler, 1, task=1) == ["exited"]


@pytest.mark.parametrize("taken", [False, True])
def test_killed_when_it_was_ready(agent: Start, scheduler: FakeScheduler, taken: bool) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, *LISTENS, gang=gang(0))
    port = scheduler.ready(1).port
    first.kill()
    with socket.socket() as stranger:
        if taken:
            stranger.bind(("127.0.0.1", port))
        agent()
        assert [(r.task, r.phase) for r in scheduler.connected(2).runs] == [(0, 5)]
        if taken:
            scheduler.wait(lambda: len(scheduler.of(1)) == 2)
            again = scheduler.of(1)[1].ready.port
            assert again != port
            port = again
        until(lambda: not is_free(port))
        scheduler.start(1, *LISTENS, gang=gang(0, go=("127.0.0.1", port)))
        assert scheduler.exited(1).exit_code == 0
    assert kinds(scheduler, 1) == ["ready"] * (1 + taken) + ["started", "exited"]


def test_killed_when_it_was_told_to_go(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, *LISTENS, gang=gang(0))
    port = scheduler.ready(1).port
    (launcher,) = of_state(state)
    os.kill(launcher, signal.SIGSTOP)
    go = gang(0, go=("127.0.0.1", port))
    scheduler.start(1, *LISTENS, gang=go)
    scheduler.hang_up()
    assert [r.phase for r in scheduler.connected(2).runs] == [1]
    first.kill()
    os.kill(launcher, signal.SIGCONT)
    agent()
    assert {r.phase for r in scheduler.connected(3).runs} <= {1, 2}
    scheduler.start(1, *LISTENS, gang=go)
    assert scheduler.exited(1).exit_code == 0
    assert Path(scheduler.started(1).log_path).read_text() == "once\n"
    assert kinds(scheduler, 1) == ["ready", "started", "exited"]


def test_a_stop_that_comes_between_go_and_the_process(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "sleep", "1000", gang=gang(1))
    scheduler.ready(1, task=1)
    (launcher,) = of_state(state)
    os.kill(launcher, signal.SIGSTOP)
    scheduler.start(1, "sleep", "1000", gang=gang(1, go=("127.0.0.1", 77)))
    scheduler.stop(1, 30, task=1)
    os.kill(launcher, signal.SIGCONT)
    exited = scheduler.exited(1, task=1)
    assert exited.exit_signal == signal.SIGTERM  # there was a process by then
    assert kinds(scheduler, 1, task=1) == ["ready", "started", "exited"]


def test_a_run_can_read_why_it_is_stopped(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    agent()
    scheduler.connected()
    told = "trap 'cat $EBB_RUN_DIR/stop.json; exit 0' TERM; touch ready; while :; do sleep 0.02; done"
    reasons = {
        pb.STOP_REASON_PREEMPTED: "preempted",
        pb.STOP_REASON_SUSPENDED: "suspended",
        pb.STOP_REASON_REQUEUED: "requeued",
        pb.STOP_REASON_TIME_LIMIT: "time_limit",
        pb.STOP_REASON_GANG: "gang",
        pb.STOP_REASON_DRAINED: "drained",
    }
    for job in range(1, len(reasons) + 1):
        scheduler.start(job, "/bin/sh", "-c", told)
    for job, (reason, name) in enumerate(reasons.items(), 1):
        until((run_directory(state, job) / "ready").exists)
        scheduler.stop(job, 30, reason=reason, cause=7)
        assert scheduler.exited(job).exit_code == 0
        assert json.loads(Path(scheduler.started(job).log_path).read_text().splitlines()[-1]) == {
            "reason": name,
            "cause_job": 7,
            "grace_s": 30.0,
        }


DONE = """
import os, pathlib, signal, time
from client_sdk.training import Checkpointer

with Checkpointer() as checkpoint:
    checkpoint.save(1)
if "RESETS" in os.environ:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
pathlib.Path("ready").touch()
while not pathlib.Path("stop.json").exists():
    time.sleep(0.02)
time.sleep(1000 if "RESETS" in os.environ else 0)
"""


@pytest.mark.parametrize("more", [{}, {"RESETS": "1"}])
def test_a_job_that_is_stopped_after_its_last_line_has_done_its_work(
    agent: Start, scheduler: FakeScheduler, state: Path, more: dict[str, str]
) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, sys.executable, "-c", DONE, environment={"PYTHONPATH": str(ROOT)} | more)
    until((run_directory(state, 1) / "ready").exists)
    scheduler.stop(1, 30)
    exited = scheduler.exited(1)
    assert (exited.exit_code, exited.exit_signal, exited.yielded) == (0, 0, False)


def test_a_log_is_asked_for_by_its_task() -> None:
    asked = pb.LogRequest(id="x", job_id=3, run=2, task=1, offset=5, follow=True)
    data = pb.ConnectResponse(log_request=asked).SerializeToString()
    assert convert.decode(data) == LogRequest("x", RunKey(3, 2, 1), 5, True)
