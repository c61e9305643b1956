"""Logs from an agent's call to a user's: paired, held back, and ended from either side."""

from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import job_pb2

from scheduler_service.rpc.services import logs
from tests.rpc.server import Agent, Failure, Sending, Server, closing, failure
from tests.store.waiting import wait_for

PIECE = bytes(64 * 1024)


@pytest.fixture
def job(server: Server, agent: Agent) -> Any:
    """A job that runs on the agent's node, and holds all of its devices."""
    made = server.submit(devices=2)
    agent.orders()
    agent.started(1, made.id)
    assert agent.acknowledged() == 1
    return made


def asked(agent: Agent) -> Sending:
    return Sending(agent, agent.receive("log_request"))


def heard(agent: Agent, *kinds: str) -> dict[str, Any]:
    """The next messages to the agent, one of each of these kinds, in the order in which they came."""
    messages = [next(agent.call) for _ in kinds]
    told = {message.WhichOneof("message"): message for message in messages}
    assert set(told) == set(kinds), messages
    return {kind: getattr(message, kind) for kind, message in told.items()}


def broken(stream: Any) -> Failure:
    """How a user's stream breaks off; whatever still comes is let pass."""

    def read() -> None:
        for _ in stream:
            pass

    return failure(read)


def test_what_the_agent_sends_is_what_the_user_gets(server: Server, agent: Agent, job: Any) -> None:
    with closing(server.logs(job.id, offset=100, follow=True)) as got:
        request = agent.receive("log_request")
        assert len(request.id) == 32
        assert (request.job_id, request.run, request.task, request.offset, request.follow) == (job.id, 1, 0, 100, True)
        with Sending(agent, request) as sending:
            sending.send(b"")
            first = next(got)
            assert (first.data, first.offset, first.run) == (b"", 100, 1)
            for number, data in enumerate((b"\0\xff", PIECE, b"x")):  # as it comes, and not when there is enough of it
                sending.send(data)
                piece = next(got)
                assert (piece.data, piece.offset, piece.run) == (data, [100, 102, 102 + len(PIECE)][number], 1)
            sending.send(end=True)
            assert list(got) == []
            assert got.code() is grpc.StatusCode.OK
            assert sending.call.code() is grpc.StatusCode.OK


def test_two_users_of_one_log(server: Server, agent: Agent, job: Any) -> None:
    with (
        closing(server.logs(job.id)) as one,
        asked(agent) as to_one,
        closing(server.logs(job.id, offset=1)) as two,
        asked(agent) as to_two,
    ):
        to_two.send(b"", b"2", end=True)
        assert [piece.data for piece in two] == [b"", b"2"]
        to_one.send(b"", b"1", end=True)
        assert [piece.data for piece in one] == [b"", b"1"]


# ---- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("follow", [False, True])
def test_no_such_job(server: Server, follow: bool) -> None:
    why = broken(server.logs(99, follow=follow))
    assert (why.code, why.reason, dict(why.info.metadata)) == (grpc.StatusCode.NOT_FOUND, "NO_SUCH_JOB", {"job_id": "99"})


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("NOT_STARTED", grpc.StatusCode.FAILED_PRECONDITION),
        ("LOG_GONE", grpc.StatusCode.NOT_FOUND),
        ("OFFSET", grpc.StatusCode.OUT_OF_RANGE),
        ("TOO_MANY_LOGS", grpc.StatusCode.RESOURCE_EXHAUSTED),
        ("LOG_UNREADABLE", grpc.StatusCode.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("sent", [(), (b"", b"some")])
def test_what_an_agent_says_is_told(
    server: Server, agent: Agent, job: Any, reason: str, code: grpc.StatusCode, sent: tuple[bytes, ...]
) -> None:
    with closing(server.logs(job.id)) as got, asked(agent) as sending:
        sending.send(*sent, error=f"{reason}: it is so: really")
        why = broken(got)
        assert (why.code, why.reason) == (code, reason)
        assert why.text == f"job {job.id} (run 1, node n1): it is so: really"
        assert dict(why.info.metadata) == {"job_id": str(job.id), "run": "1", "node": "n1"}
        assert sending.call.code() is grpc.StatusCode.OK


def test_what_has_not_started(server: Server, agent: Agent, job: Any) -> None:
    waiting = server.submit(devices=1)
    why = broken(server.logs(waiting.id))
    assert (why.code, why.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_STARTED")
    assert why.text == f"job {waiting.id} is QUEUED and has written nothing yet; follow it to wait for its output"
    why = broken(server.logs(job.id, run=2))
    assert why.reason == "NOT_STARTED"
    assert why.text == f"job {job.id} is RUNNING and has had no run 2 yet; follow it to wait for its output"


@pytest.mark.parametrize("follow", [False, True])
def test_a_task_that_it_does_not_have(server: Server, agent: Agent, job: Any, follow: bool) -> None:
    why = broken(server.logs(job.id, task=1, follow=follow))
    assert (why.code, why.reason) == (grpc.StatusCode.NOT_FOUND, "LOG_GONE")
    assert why.text == f"job {job.id} (run 1) has no task 1"


def test_a_node_that_is_not_connected(server: Server, agent: Agent, job: Any) -> None:
    agent.hang_up()
    for follow in (False, True):
        why = broken(server.logs(job.id, follow=follow))
        assert (why.code, why.reason) == (grpc.StatusCode.UNAVAILABLE, "NODE_NOT_CONNECTED")
        assert dict(why.info.metadata) == {"job_id": str(job.id), "run": "1", "node": "n1", "over": "false"}
    with Agent(server, boot="boot-2", node="n2", devices=0) as elsewhere:
        elsewhere.connect()
        assert broken(server.logs(job.id)).reason == "NODE_NOT_CONNECTED"


def test_an_answer_that_nobody_waits_for(server: Server, agent: Agent) -> None:
    with Sending(agent, link_pb.LogRequest(id="made up")) as sending:
        sending.send(b"")
        assert failure(sending.call.result).reason == "NO_SUCH_REQUEST"
    with Sending(agent, link_pb.LogRequest()) as sending:
        sending.half_close()
        assert failure(sending.call.result).reason == "NO_SUCH_REQUEST"


# ---- runs --------------------------------------------------------------------------------------------------------------


def test_followed_before_it_starts(server: Server, agent: Agent, job: Any) -> None:
    waiting = server.submit(devices=1)
    with closing(server.logs(waiting.id, follow=True)) as got:
        agent.exited(2, job.id)
        told = heard(agent, "desired_runs", "acknowledgement", "log_request")
        assert list(told).index("desired_runs") < list(told).index("log_request"), "it knows the run whose log is asked for"
        assert [order.job_id for order in told["desired_runs"].runs] == [waiting.id]
        with Sending(agent, told["log_request"]) as sending:
            sending.send(b"", b"hello", end=True)
            assert [(piece.data, piece.run) for piece in got] == [(b"", 1), (b"hello", 1)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_followed_and_never_started(server: Server, agent: Agent, job: Any, when: str) -> None:
    """There is nothing to come: the stream ends, and is empty."""
    waiting = server.submit(devices=1)
    if when == "before":
        server.cancel(waiting.id)
    with closing(server.logs(waiting.id, follow=True)) as got:
        if when == "after":
            server.cancel(waiting.id)
        assert list(got) == []
    assert broken(server.logs(waiting.id)).reason == "NOT_STARTED"


def test_runs_by_their_numbers(server: Server, agent: Agent, job: Any) -> None:
    """The second is waited for over a preemption; the first one is where it was."""
    with closing(server.logs(job.id, run=2, follow=True)) as second:
        server.submit(devices=1, job_class=job_pb2.JOB_CLASS_TRIAL)  # the job has to go
        (stop,) = agent.orders()
        assert stop.WhichOneof("state") == "stopped"
        agent.exited(2, job.id, yielded=True)
        (trial,) = heard(agent, "desired_runs", "acknowledgement")["desired_runs"].runs
        agent.exited(3, trial.job_id)
        told = heard(agent, "desired_runs", "acknowledgement", "log_request")
        assert [(order.job_id, order.run) for order in told["desired_runs"].runs] == [(job.id, 2)]
        with Sending(agent, told["log_request"]) as sending:
            sending.send(b"", b"two", end=True)
            assert [(piece.data, piece.run) for piece in second] == [(b"", 2), (b"two", 2)]
    for run, wanted in ((1, 1), (0, 2)):
        with closing(server.logs(job.id, run=run)):
            assert agent.receive("log_request").run == wanted
    agent.exited(4, job.id, run=2)
    assert agent.acknowledged() == 4
    server.until(job.id, "SUCCEEDED")
    for run, wanted in ((1, 1), (0, 2)):
        with closing(server.logs(job.id, run=run, follow=True)):
            assert agent.receive("log_request").run == wanted
    assert list(server.logs(job.id, run=3, follow=True)) == []


@pytest.mark.parametrize(("field", "value"), [("data", b"x" * (64 * 1024 + 1)), ("error", "x" * 4097)])
def test_what_is_too_long_is_refused_and_no_end_of_the_log(
    server: Server, agent: Agent, job: Any, field: str, value: object
) -> None:
    with closing(server.logs(job.id)) as got, asked(agent) as sending:
        sending.send(b"", **{field: value})
        assert next(got).data == b""
        assert failure(lambda: next(got)).reason == "NODE_NOT_CONNECTED"
        said = failure(sending.call.result)
        assert (said.code, said.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, field)


def test_who_waits_for_a_log_is_told_at_once_that_its_first_piece_is_refused(server: Server, agent: Agent, job: Any) -> None:
    with closing(server.logs(job.id, timeout=logs.ANSWER_LIMIT / 2)) as got, asked(agent) as sending:
        sending.send(error="x" * 4097)
        assert failure(sending.call.result).code is grpc.StatusCode.INVALID_ARGUMENT
        assert broken(got).reason == "NODE_NOT_CONNECTED"


# ---- ends --------------------------------------------------------------------------------------------------------------


def test_a_user_who_hangs_up(server: Server, agent: Agent, job: Any) -> None:
    with closing(server.logs(job.id, follow=True)) as got, asked(agent) as sending:
        sending.send(b"", b"x")
        assert [next(got).data, next(got).data] == [b"", b"x"]
        got.cancel()
        assert sending.call.result() == link_pb.SendLogResponse(), "the agent is told, although nothing is being sent"
    with closing(server.logs(job.id, follow=True)) as got:
        request = agent.receive("log_request")
        got.cancel()
        agent.send(heartbeat=link_pb.Heartbeat())
        with Sending(agent, request) as late:  # either it comes too late, or it is ended at once
            late.send(b"")
            assert wait_for(late.call.done)


@pytest.mark.parametrize("how", ["breaks off", "says nothing more", "is lost with its link", "connects anew"])
def test_an_agent_that_goes(server: Server, agent: Agent, job: Any, how: str) -> None:
    """It must not look like the end of the log."""
    with closing(server.logs(job.id, follow=True)) as got, asked(agent) as sending:
        sending.send(b"", b"x")
        assert [next(got).data, next(got).data] == [b"", b"x"]
        again = Agent(server)
        match how:
            case "breaks off":
                sending.call.cancel()
            case "says nothing more":
                sending.half_close()
            case "is lost with its link":
                agent.hang_up()
            case "connects anew":
                again.connect()
        why = broken(got)
        assert (why.code, why.reason) == (grpc.StatusCode.UNAVAILABLE, "NODE_NOT_CONNECTED")
        again.__exit__()


def test_an_agent_that_goes_before_it_answers(server: Server, agent: Agent, job: Any) -> None:
    with closing(server.logs(job.id)) as got:
        agent.receive("log_request")
        agent.hang_up()
        assert broken(got).reason == "NODE_NOT_CONNECTED"


def test_an_agent_that_does_not_answer(server: Server, agent: Agent, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is older than this, and does not know the request."""
    monkeypatch.setattr(logs, "ANSWER_LIMIT", 0.2)
    with closing(server.logs(job.id)) as got:
        assert broken(got).reason == "NODE_NOT_CONNECTED"
        request = agent.receive("log_request")
    with Sending(agent, request) as late:
        late.send(b"")
        assert failure(late.call.result).reason == "NO_SUCH_REQUEST"


def test_a_scheduler_that_stops(server: Server, agent: Agent, job: Any) -> None:
    waiting = server.submit(devices=1)
    with closing(server.logs(waiting.id, follow=True)) as not_started, closing(server.logs(job.id, follow=True)) as got:
        with asked(agent) as sending:
            sending.send(b"")
            next(got)
            server._loop.call_soon_threadsafe(server._loop.end)
            for stream in (got, not_started):
                with pytest.raises(grpc.RpcError) as ended:
                    next(stream)
                assert ended.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        server._thread.join(30)


# ---- a reader that does not read ---------------------------------------------------------------------------------------


def test_a_reader_that_stops_stops_the_agent_and_nothing_else(server: Server, agent: Agent, job: Any) -> None:
    """200 MB are there to be sent. They stay with the agent, whose own link goes on; and all of them come in the end."""
    count = 3200
    with closing(server.logs(job.id)) as got, asked(agent) as sending:
        sending.send(b"", *([PIECE] * count), end=True)
        assert next(got).data == b""
        settled = wait_for(lambda: standstill(server, sending), 30)
        assert settled < 16 * 2**20, f"{settled} bytes are on their way to somebody who reads nothing"
        agent.exited(2, job.id)
        assert agent.acknowledged() == 2, "a log that stands still keeps no report back"
        assert sum(len(piece.data) for piece in got) == count * len(PIECE)
        assert sending.call.code() is grpc.StatusCode.OK


def standstill(server: Server, sending: Sending) -> int:
    """What has been taken, where nothing more is while other calls come and go; else 0."""
    before = sending.taken
    for _ in range(100):
        server.nodes()
    return before if sending.taken == before else 0
