"""The link by itself: what ends a conversation, and what does not."""

import asyncio
import itertools
import logging
import random
from collections.abc import Iterator
from typing import Any

import grpc.aio
import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from google.protobuf import any_pb2
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from node_agent.devices.base import Inventory
from node_agent.errors import Disconnected, Refused
from node_agent.transport import convert, link
from node_agent.transport.connection_ends import explain_end
from node_agent.transport.messages import Acknowledgement, Hello, NodeConfiguration, Welcome
from node_agent.transport.security import Security
from tests.agent.fake_scheduler import FakeScheduler


class EndedCall:
    """A stream that the scheduler has closed, and whose sender takes a moment to let go of."""

    def __init__(self) -> None:
        self.writing = asyncio.Event()
        self.letting_go = asyncio.Event()

    async def read(self) -> object:
        await self.writing.wait()
        return grpc.aio.EOF

    async def write(self, _message: object) -> None:
        self.writing.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.letting_go.set()
            await asyncio.sleep(0.05)


class CancelledCall(EndedCall):
    """A stream that the library has cancelled."""

    async def read(self) -> object:
        raise asyncio.CancelledError


class WelcomingCall:
    """A stream on which the scheduler has just answered."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

    async def read(self) -> Welcome:
        return await self.answered


class QuietNode:
    def __init__(self, fault: Exception | None = None) -> None:
        self.reported = asyncio.Event()
        self._fault = fault

    def hello(self) -> Hello:
        return Hello("n1", "b", "", 0, Inventory(1000, 1024), (), "1")

    def accept_welcome(self, _welcome: Welcome) -> None:
        pass

    def acknowledge(self, _sequence: int) -> None:
        pass

    def pending(self, _after: int) -> list[object]:
        if self._fault is not None:
            raise self._fault
        return []

    async def transfer(self, _calls: object) -> None:
        """It has no files."""

    def observations(self) -> None:
        return None

    async def recheck_devices(self, _reports: object) -> None:
        pass

    def log(self, request: object) -> None:
        raise AssertionError(f"nobody asks for a log here: {request}")


async def _converse(call: EndedCall, node: QuietNode) -> None:
    session = link.Session(link.Pace(heartbeat=0.001))
    await link._converse("here", call, node, session, answer=id)  # type: ignore[arg-type]


async def test_a_stream_that_ends_is_a_disconnection() -> None:
    with pytest.raises(Disconnected, match="closed the connection"):
        await _converse(EndedCall(), QuietNode())


async def test_cancelling_while_the_stream_ends_is_not_lost() -> None:
    """SIGTERM for the agent just when the scheduler goes away: the agent must end all the same."""
    call = EndedCall()
    talking = asyncio.create_task(_converse(call, QuietNode()))
    await asyncio.wait_for(call.letting_go.wait(), 5)  # the stream has ended, and its sender is being let go of
    talking.cancel()
    await asyncio.wait([talking], timeout=5)
    assert talking.cancelled()


async def test_a_fault_of_our_own_is_not_taken_for_the_end_of_the_stream() -> None:
    with pytest.raises(OSError, match="disk full"):
        await _converse(EndedCall(), QuietNode(OSError("disk full")))


async def test_a_stream_that_was_cancelled_is_a_disconnection() -> None:
    with pytest.raises(Disconnected, match="closed the connection"):
        await _converse(CancelledCall(), QuietNode())


class Refusing(FakeScheduler):
    """Ends every stream with a reason, at once or after the welcome."""

    welcoming = False
    connects = 0

    def Connect(self, request_iterator: Iterator[pb.ConnectRequest], context: Any) -> Iterator[pb.ConnectResponse]:  # noqa: N802
        next(request_iterator)
        self.connects += 1
        if self.welcoming:
            yield pb.ConnectResponse(welcome=pb.Welcome(cluster_id="c1", epoch=1))
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ErrorInfo(reason="NODE_CONNECTED", domain="ebb"))
        status = status_pb2.Status(code=9, message="node n1 is connected from elsewhere", details=[detail])
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, status.message)


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    fake = Refusing()
    yield fake
    fake.close()


def test_an_agent_without_a_token_is_told_of_its_own_setting() -> None:
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason="NO_TOKEN", domain="ebb"))
    status = status_pb2.Status(code=16, message="none was sent: set EBB_TOKEN_FILE", details=[detail])
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNAUTHENTICATED, grpc.aio.Metadata(), trailing, status.message)
    said = str(explain_end("sched:7737", error, Security(), welcomed=False))
    assert "sched:7737 refuses this node: it asks for a token: name a file with one in token_file" in said
    assert "EBB_TOKEN_FILE" not in said


@pytest.mark.parametrize("welcoming", [False, True])
async def test_a_refusal_is_told_once_and_tried_more_and_more_seldom(
    refusing: Refusing, welcoming: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing.welcoming = welcoming
    monkeypatch.setattr(link.random, "uniform", lambda _low, high: high)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(link.run(refusing.address, QuietNode(), link.Pace(first=0.05)), 0.7)  # type: ignore[arg-type]
    assert 2 <= refusing.connects <= 4  # after 0, 0.05, 0.15 and 0.35 s
    (told,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert f"{refusing.address} refuses this node: node n1 is connected from elsewhere." in told


@pytest.mark.parametrize(
    ("reason", "longest"), [("NODE_CONNECTED", 5), ("INVENTORY_CHANGED", 5), ("OLD_EPOCH", 5), ("OTHER_CLUSTER", 30)]
)
async def test_how_long_is_waited_at_most(
    reason: str, longest: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    tries = itertools.count()

    async def refused(*_: object) -> None:
        if next(tries) == 12:
            raise KeyError("enough")
        raise Refused(target="here", reason=reason, why=f"because {next(tries)}")

    monkeypatch.setattr(link, "_run_connection", refused)
    monkeypatch.setattr(link.random, "uniform", lambda _low, high: waits.append(high) or 0)
    with pytest.raises(KeyError, match="enough"):
        await link.run("here", QuietNode(), link.Pace(first=4))  # type: ignore[arg-type]
    assert waits == [min(longest, 4 * 2**n) for n in range(6)]
    assert len(caplog.records) == 1


async def test_what_shows_that_a_link_works() -> None:
    class Acknowledging(EndedCall):
        said = False

        async def read(self) -> object:
            if not self.said:
                self.said = True
                return Acknowledgement(1)
            return await super().read()

    session = link.Session(link.Pace(heartbeat=0.001, proven=5.0))
    session.note_welcome(NodeConfiguration())
    assert not session.has_worked
    with pytest.raises(Disconnected):
        await link._converse("here", Acknowledging(), QuietNode(), session, answer=id)  # type: ignore[arg-type]
    assert session.has_worked
    lived = link.Session(link.Pace(proven=0.01))
    assert not lived.has_worked
    lived.note_welcome(NodeConfiguration())
    await asyncio.sleep(0.02)
    assert lived.has_worked


@pytest.mark.parametrize("turns", range(5))
async def test_an_answer_that_comes_with_the_cancellation_does_not_hide_it(turns: int) -> None:
    """An agent that is told to leave as it is welcomed leaves, whichever of the two is heard first."""
    call = WelcomingCall()
    over = asyncio.Event()

    async def talk() -> None:
        await link._welcome("here", call, 5)  # type: ignore[arg-type]
        await over.wait()

    talking = asyncio.create_task(talk())
    await asyncio.sleep(0)
    call.answered.set_result(Welcome("c1", 1, 0))
    for _ in range(turns):
        await asyncio.sleep(0)
    talking.cancel()
    done, _ = await asyncio.wait([talking], timeout=5)
    assert done
    assert talking.cancelled()


async def test_agents_of_a_large_cluster_spread_when_they_connect_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first try is within the time that the scheduler said, and those after it are as soon as always."""
    waits: list[float] = []
    sessions = iter((2.0, None, None))

    async def session(*arguments: Any) -> None:
        if (within := next(sessions)) is not None:
            configuration = NodeConfiguration(reconnect_within=within)
            next(each for each in arguments if isinstance(each, link.Session)).note_welcome(configuration)
        raise Disconnected(target="here", why="is gone")

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(link, "_run_connection", session)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    with pytest.raises(asyncio.CancelledError):
        await link.run("here", QuietNode(), link.Pace(first=0.1))  # type: ignore[arg-type]
    assert waits == [2.0, 0.2, 0.4]


def test_a_welcome_says_how_long_agents_may_take_to_connect_again() -> None:
    configuration = pb.NodeConfiguration(reconnect_within=Duration(seconds=2, nanos=500_000_000))
    said = pb.Welcome(cluster_id="c", epoch=1, configuration=configuration)
    welcome = convert.decode(pb.ConnectResponse(welcome=said).SerializeToString())
    assert isinstance(welcome, Welcome)
    assert welcome.configuration.reconnect_within == 2.5
