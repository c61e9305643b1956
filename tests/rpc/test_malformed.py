"""Bytes that are no message: the caller is told so, after it was let in; the log says it once; nobody else is disturbed."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb

from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc import decoding
from scheduler_service.rpc.access import MAY, OPEN
from tests.rpc.server import LIMIT, Agent, Failure, Sending, Server, closing, failure
from tests.rpc.test_access import NAMES, Tokens, bearer, tokens  # noqa: F401 - a fixture

MALFORMED = b"\x0a\xff\xff\xff"
"""The first field, which says that it is longer than what comes."""
GET = "/ebb.v1.Scheduler/Get"


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def send(server: Server, method: str, *data: bytes, metadata: Any = ()) -> Failure:
    """What a call with these requests fails with. On the wire, all kinds of calls look alike."""
    return failure(lambda: list(server.channel.stream_stream(method)(iter(data), timeout=LIMIT, metadata=metadata)))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == decoding.__name__]


def test_every_method_says_so_and_no_other_call_is_disturbed(
    server: Server, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(server.watch()) as watch:
        next(watch)
        for method in MAY:
            said = send(server, method, MALFORMED)
            assert (said.code, said.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED"), method
            assert "the request has 4 bytes that are no message" in said.text
        job = server.submit()
        assert [each.id for each in next(watch).jobs] == [job.id]
        assert [order.job_id for order in agent.orders()] == [job.id]
    for method, line in zip(MAY, lines(caplog), strict=True):
        assert line.startswith(f"{method} from ipv4:127.0.0.1:")
        assert line.endswith(" is refused: its 4 bytes are no message")


def test_after_messages_that_were_taken(server: Server, agent: Agent) -> None:
    hello = link_pb.ConnectRequest(hello=Agent(server, "n2").hello).SerializeToString()
    assert send(server, "/ebb.agent.v1.AgentLink/Connect", hello, MALFORMED).reason == "MALFORMED"
    assert [node.name for node in server.nodes()] == ["n1", "n2"], "what came before is kept"
    job = server.submit()
    agent.orders()
    log = server.logs(job.id)
    with Sending(agent, agent.receive("log_request")) as sending:
        sending.send(b"abc")
        assert next(log).data == b"abc"
    cut = failure(lambda: next(log))
    assert cut.reason == "NODE_NOT_CONNECTED"
    asked = server.logs(job.id)
    request = link_pb.SendLogRequest(id=agent.receive("log_request").id, data=b"abc").SerializeToString()
    answer = agent._channel.stream_unary("/ebb.agent.v1.AgentLink/SendLog").future(iter([request, MALFORMED]), timeout=LIMIT)
    assert next(asked).data == b"abc"
    assert failure(lambda: next(asked)).reason == "NODE_NOT_CONNECTED"
    assert failure(answer.result).reason == "MALFORMED"


def test_a_flood_is_logged_once(server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        assert send(server, GET, MALFORMED).reason == "MALFORMED"
    (first,) = lines(caplog)
    monkeypatch.setattr(decoding, "LOG_INTERVAL", 0.0)
    send(server, GET, MALFORMED)
    assert first.endswith("its 4 bytes are no message")
    assert lines(caplog)[1:] == [line for line in lines(caplog) if line.endswith("; 19 more since the last message about this")]


def test_who_is_calling_is_asked_first(
    database_url: str,
    tokens: Tokens,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    del tokens
    with Server(database_url, auth="token") as server:
        for method, rule in MAY.items():
            for role in (None, *Role):
                said = send(server, method, MALFORMED, metadata=bearer(NAMES[role]) if role is not None else ())
                if rule is OPEN or role in rule.roles:
                    assert said.reason == "MALFORMED", method
                else:
                    assert said.reason == ("NO_TOKEN" if role is None else "ROLE"), method
        caplog.clear()
        send(server, GET, MALFORMED)
        assert lines(caplog) == [], "who is not let in does not get that far"
