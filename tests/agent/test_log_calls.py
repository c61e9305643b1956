"""Logs that a scheduler asks an agent for: what is sent, and what ends it."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import psutil
import pytest
from ebb.agent.v1 import agent_link_pb2 as pb

from node_agent.processes.logs import PIECE
from node_agent.transport.logs import AT_ONCE
from tests.agent.conftest import AgentProcess, lose_spool, until
from tests.agent.fake_scheduler import FakeScheduler, Log

Start = Callable[..., AgentProcess]
WAITS = 'echo "$EBB_JOB_ID.$EBB_RUN"; until [ -e go ]; do sleep 0.02; done; printf "the end"'


def go(scheduler: FakeScheduler, job: int) -> None:
    (Path(scheduler.started(job).log_path).parent / "go").touch()


def opened(agent: AgentProcess) -> int:
    """How many logs it holds open."""
    return sum(file.path.endswith("/output.log") for file in psutil.Process(agent.process.pid).open_files())


def test_a_log_that_is_there(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "head -c 200000 /dev/urandom; echo the end")
    scheduler.exited(1)
    written = Path(scheduler.started(1).log_path).read_bytes()
    assert len(written) == 200008
    for follow in (False, True):
        scheduler.ask_log(f"whole-{follow}", 1, follow=follow)
        scheduler.ask_log(f"part-{follow}", 1, offset=199_999, follow=follow)
        whole, part = scheduler.log(f"whole-{follow}"), scheduler.log(f"part-{follow}")
        assert (whole.data, part.data) == (written, written[199_999:])
        first, *rest, last = whole.messages
        assert first == pb.SendLogRequest(id=f"whole-{follow}")
        assert [len(message.data) for message in rest] == [PIECE] * 3 + [200008 - 3 * PIECE]
        assert last == pb.SendLogRequest(end=True)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [({"job": 9}, "LOG_GONE"), ({"job": 1, "run": 2}, "LOG_GONE"), ({"job": 1, "task": 1}, "LOG_GONE"),
     ({"job": -1, "run": -1}, "LOG_GONE"), ({"job": 1, "offset": 7}, "OFFSET")],
)  # fmt: skip
def test_what_it_does_not_have(agent: Start, scheduler: FakeScheduler, asked: dict[str, int], reason: str) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/echo", "a log")
    scheduler.exited(1)
    for follow in (False, True):
        scheduler.ask_log(f"{follow}", follow=follow, **asked)
        (only,) = scheduler.log(f"{follow}").messages
        assert only.id == f"{follow}"
        assert only.error.startswith(f"{reason}: ")


def test_followed_from_before_its_start_to_its_end(agent: Start, scheduler: FakeScheduler) -> None:
    one = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", WAITS)
    scheduler.ask_log("early", 1, follow=True)  # right behind the order, as it may well come
    scheduler.log("early", lambda log: log.data == b"1.1\n")
    scheduler.ask_log("late", 1, offset=2, follow=True)
    scheduler.log("late", lambda log: log.data == b"1\n")
    scheduler.ask_log("now", 1)
    assert scheduler.log("now").data == b"1.1\n"
    assert opened(one) == 2
    go(scheduler, 1)
    scheduler.exited(1)
    assert [scheduler.log(id_).data for id_ in ("early", "late")] == [b"1.1\nthe end", b"1\nthe end"]
    assert all(scheduler.logs[id_].messages[-1].end for id_ in ("early", "late", "now"))
    until(lambda: opened(one) == 0)


def test_followed_by_the_next_agent(agent: Start, scheduler: FakeScheduler) -> None:
    first = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", WAITS)
    scheduler.ask_log("first", 1, follow=True)
    scheduler.log("first", lambda log: log.data == b"1.1\n")
    first.kill()
    assert not any(message.end or message.error for message in scheduler.log("first").messages)
    agent()
    scheduler.connected(2)
    scheduler.ask_log("second", 1, offset=4, follow=True)
    scheduler.log("second", lambda log: bool(log.messages))
    go(scheduler, 1)
    assert scheduler.log("second").data == b"the end"


@pytest.mark.parametrize("how", ["the reader", "the link"])
def test_a_reader_who_goes(agent: Start, scheduler: FakeScheduler, how: str) -> None:
    """The file is closed soon, whether there is something to send or not."""
    one = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", "while :; do echo more; sleep 0.02; done")
    scheduler.start(2, "/bin/sh", "-c", WAITS)
    for job in (1, 2):
        scheduler.ask_log(f"of {job}", job, follow=True)
        scheduler.log(f"of {job}", lambda log: bool(log.data))
    assert opened(one) == 2
    if how == "the reader":
        for left, job in ((1, 1), (0, 2)):
            scheduler.logs[f"of {job}"].hang_up()
            until(lambda n=left: opened(one) == n)  # type: ignore[misc]
        assert len(scheduler.hellos) == 1, "and nothing else ends"
    else:
        scheduler.hang_up()
        scheduler.connected(2)
        until(lambda: opened(one) == 0)
        assert all(log.over for log in scheduler.logs.values())


def test_so_many_at_once(agent: Start, scheduler: FakeScheduler) -> None:
    one = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", WAITS)
    scheduler.started(1)
    for number in range(AT_ONCE):
        scheduler.ask_log(f"{number}", 1, follow=True)
    scheduler.wait(lambda: len(scheduler.logs) == AT_ONCE and all(log.data for log in scheduler.logs.values()))
    scheduler.ask_log("one more", 1)
    (refused,) = scheduler.log("one more").messages
    assert refused.error.startswith("TOO_MANY_LOGS: ")
    go(scheduler, 1)
    logs: list[Log] = [scheduler.log(f"{number}") for number in range(AT_ONCE)]
    assert {log.data for log in logs} == {b"1.1\nthe end"}
    until(lambda: opened(one) == 0)
    tries = count()

    def is_served() -> bool:
        """A call is over a little later than its file is closed."""
        name = f"again {next(tries)}"
        scheduler.ask_log(name, 1)
        return scheduler.log(name).data == b"1.1\nthe end"

    until(is_served)


def test_a_log_that_is_taken_away(agent: Start, scheduler: FakeScheduler) -> None:
    agent()
    scheduler.connected()
    scheduler.start(1, "/bin/sh", "-c", WAITS)
    path = Path(scheduler.started(1).log_path)
    scheduler.ask_log("cut short", 1, follow=True)
    scheduler.log("cut short", lambda log: bool(log.data))
    os.truncate(path, 0)
    assert scheduler.log("cut short").messages[-1].error.startswith("OFFSET: ")
    path.unlink()
    scheduler.ask_log("gone", 1, follow=True)
    assert scheduler.log("gone").messages[-1].error.startswith("LOG_GONE: ")
    go(scheduler, 1)
    scheduler.exited(1)


def test_the_log_of_a_run_of_before_a_reboot(agent: Start, scheduler: FakeScheduler, state: Path) -> None:
    """There is another spool since; the file is where it was."""
    first = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/echo", "of before")
    scheduler.exited(1)
    assert first.terminate() == 0
    lose_spool(state)
    agent()
    scheduler.connected(2)
    scheduler.start(2, "/bin/echo", "of now")
    scheduler.exited(2)
    for job, said in ((1, b"of before\n"), (2, b"of now\n")):
        for follow in (False, True):
            scheduler.ask_log(f"{job} {follow}", job, follow=follow)
            assert scheduler.log(f"{job} {follow}").data == said
    scheduler.ask_log("of neither", 3)
    assert scheduler.log("of neither").messages[-1].error.startswith("LOG_GONE: ")


def test_no_log_of_another_cluster(agent: Start, scheduler: FakeScheduler) -> None:
    """Its runs had the same numbers."""
    first = agent()
    scheduler.connected()
    scheduler.start(1, "/bin/echo", "somebody else's")
    scheduler.exited(1)
    assert first.terminate() == 0
    scheduler.cluster_id = "c2"
    agent("--forget-cluster")
    scheduler.connected(2)
    scheduler.ask_log("theirs", 1)
    assert scheduler.log("theirs").messages[-1].error.startswith("LOG_GONE: ")
