"""More calls at once than the event loop gets to: each waits for its turn, and none is ended for another's sake."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import grpc.aio
import pytest
from ebb.agent.v1 import agent_link_pb2 as pb
from ebb.v1 import job_pb2

from scheduler_service.core.messages import Joined
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.server import STREAMS_EACH, serving
from scheduler_service.rpc.services.agent_link import AgentLink, _read_messages
from scheduler_service.rpc.services.logs import Transfers
from scheduler_service.run.dispatch import Dispatch, Link
from scheduler_service.run.read_model import View

LIMIT = 30
AGENTS = 2_500
CONNECT = "/ebb.agent.v1.AgentLink/Connect"


@asynccontextmanager
async def standby() -> AsyncIterator[tuple[str, Callable[[Callable[[], object]], object]]]:
    """A server of which nobody leads, with a loop of its own: its address, and what has that loop call something."""
    reader: Any = Nobody()
    serves: asyncio.Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = asyncio.get_running_loop().create_future()
    here = asyncio.get_running_loop()

    async def serve() -> None:
        backend = Backend(reader, "ada", 0, heartbeat_seconds=5, silent_after_seconds=15)
        over = asyncio.Event()
        async with serving("127.0.0.1:0", backend) as (address, _):
            here.call_soon_threadsafe(serves.set_result, (address, asyncio.get_running_loop(), over))
            await over.wait()
        backend.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    address, loop, over = await asyncio.wait_for(serves, LIMIT)
    try:
        yield address, loop.call_soon_threadsafe
    finally:
        loop.call_soon_threadsafe(over.set)
        await asyncio.to_thread(thread.join, LIMIT)


class Nobody:
    """What reads a database of no leader."""

    market = None

    def leader(self) -> str:
        return ""


async def test_no_call_is_cancelled_because_many_wait() -> None:
    """gRPC ends waiting calls at random from 1,000 on, those of other clients too, unless it is told otherwise."""
    held = threading.Event()
    async with standby() as (address, call), AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]))
            for _ in range(AGENTS // STREAMS_EACH)
        ]
        connects = [
            each.stream_stream(
                CONNECT,
                request_serializer=pb.ConnectRequest.SerializeToString,
                response_deserializer=pb.ConnectResponse.FromString,
            )
            for each in connections
        ]
        for each in connections:
            await each.channel_ready()
        call(lambda: held.wait(LIMIT))
        try:
            calls = [connect(timeout=LIMIT) for connect in connects for _ in range(STREAMS_EACH)]
            for each in calls:
                with suppress(asyncio.InvalidStateError):  # it is ended already, and its code says how
                    await each.write(pb.ConnectRequest(heartbeat=pb.Heartbeat()))
        finally:
            held.set()
        codes = Counter(await asyncio.gather(*(each.code() for each in calls)))
    assert codes == {grpc.StatusCode.UNAVAILABLE: AGENTS}  # as nobody leads: that is the scheduler's word


class Engine:
    """Takes what it is given, and remembers at which turn of the event loop that was."""

    def __init__(self) -> None:
        self.turn = 0
        self.taken: list[int] = []

    def handle(self, _event: object) -> "asyncio.Future[Any]":
        self.taken.append(self.turn)
        return asyncio.get_running_loop().create_future()


def _hellos(count: int) -> list[pb.ConnectRequest]:
    capacity = job_pb2.Resources(cpu_milli=1000, memory_mib=1000)
    return [pb.ConnectRequest(hello=pb.Hello(node=f"n{i}", boot_id="b", capacity=capacity)) for i in range(count)]


async def _silent_after(request: pb.ConnectRequest) -> AsyncIterator[pb.ConnectRequest]:
    yield request
    await asyncio.Event().wait()


async def _one(request: pb.ConnectRequest) -> AsyncIterator[pb.ConnectRequest]:
    yield request


async def test_users_have_their_turn_between_two_agents_that_connect() -> None:
    """A look at a hello takes long. Where a thousand are there at once, one turn of the event loop is for one of them."""
    engine = Engine()
    view = View([], commit_no=0)
    leading: Any = SimpleNamespace(service=engine, dispatch=Dispatch(), view=view, cluster_id="c", epoch=1)
    backend: Any = SimpleNamespace(leading=leading, silent_after_seconds=10)
    context: Any = SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:4711")
    servicer = AgentLink(backend, Transfers())
    hellos = _hellos(20)
    calls = [asyncio.ensure_future(anext(servicer.Connect(_one(hello), context))) for hello in hellos]
    async with asyncio.timeout(LIMIT):
        while len(engine.taken) < len(hellos):
            engine.turn += 1
            await asyncio.sleep(0)
    assert len(set(engine.taken)) == len(hellos)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)


async def test_users_have_their_turn_between_two_links_that_break() -> None:
    """As when a switch fails: a thousand of them break in one moment."""
    turn, closed = 0, list[int]()

    class Closing(Dispatch):
        def close(self, link: Link) -> None:
            closed.append(turn)
            super().close(link)

    class Joining(Engine):
        def handle(self, event: object) -> "asyncio.Future[Any]":
            future = super().handle(event)
            future.set_result(Joined(1, 0, ()))
            return future

    leading: Any = Mock(service=Joining(), dispatch=Closing(), view=View([], commit_no=0), cluster_id="c", epoch=1)
    leading.seals.seal_of.return_value = leading.seals.transfer_key = b""
    servicer = AgentLink(Mock(leading=leading, heartbeat_seconds=2, silent_after_seconds=10), Transfers())
    joined = asyncio.Semaphore(0)

    async def serve(hello: pb.ConnectRequest) -> None:
        async with aclosing(servicer.Connect(_silent_after(hello), Mock(peer=lambda: "ipv4:10.0.0.1:4711"))) as responses:
            async for _ in responses:
                joined.release()

    calls = [asyncio.create_task(serve(hello)) for hello in _hellos(20)]
    async with asyncio.timeout(LIMIT):
        for _ in calls:
            await joined.acquire()
        for _ in range(5):  # until all wait for what comes next
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        while len(closed) < len(calls):
            turn += 1
            await asyncio.sleep(0)
    await asyncio.wait(calls)
    assert len(set(closed)) == len(calls)


async def test_users_have_their_turn_between_what_two_agents_observe() -> None:
    """All of a cluster say so when they have connected."""
    turn, looked = 0, list[int]()

    class Observer:
        def take_observations(self, _seen: object) -> None:
            looked.append(turn)

    seen, look = pb.ConnectRequest(observations=pb.Observations()), asyncio.Lock()

    async def read() -> None:
        link: Any = SimpleNamespace(heard=0.0)
        await _read_messages(Mock(), link, Mock(), _one(seen), asyncio.Queue(), cast(Any, Observer()), look)

    reading = [asyncio.create_task(read()) for _ in range(20)]
    async with asyncio.timeout(LIMIT):
        while not all(each.done() for each in reading):
            turn += 1
            await asyncio.sleep(0)
    assert len(set(looked)) == len(looked) == len(reading)


@pytest.mark.parametrize(("nodes", "seconds"), [(0, 0.0), (10, 0.02), (2_000, 4.0), (20_000, 5.0)])
def test_agents_are_told_to_spread_over_a_time_that_grows_with_the_cluster(nodes: int, seconds: float) -> None:
    """And never for as long as a node may be silent."""
    leading: Any = SimpleNamespace(view=SimpleNamespace(nodes=range(nodes)), cluster_id="c", epoch=1, seals=Mock())
    leading.seals.seal_of.return_value = leading.seals.transfer_key = b""
    backend: Any = SimpleNamespace(heartbeat_seconds=2, silent_after_seconds=10)
    said = AgentLink(backend, Transfers())._welcome(leading, Joined(1, 0, ()))
    assert said.welcome.configuration.reconnect_within.ToMilliseconds() == 1000 * seconds
