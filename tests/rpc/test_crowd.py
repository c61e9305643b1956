"""More calls at once than the event loop gets to: each waits for its turn, and none is ended for another's sake."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc.aio
from ebb.v1 import agent_link_pb2 as pb

from scheduler_service.rpc.front import Front
from scheduler_service.rpc.server import serving

LIMIT = 30
AGENTS = 2_500
CONNECT = "/ebb.v1.AgentLink/Connect"


@asynccontextmanager
async def standby() -> AsyncIterator[tuple[str, Callable[[Callable[[], object]], object]]]:
    """A server of which nobody leads, with a loop of its own: its address, and what has that loop call something."""
    reader: Any = Nobody()
    serves: asyncio.Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = asyncio.get_running_loop().create_future()
    here = asyncio.get_running_loop()

    async def serve() -> None:
        front = Front(reader, "ada", 0, heartbeat_seconds=5, silent_after_seconds=15)
        over = asyncio.Event()
        async with serving("127.0.0.1:0", front) as (address, _):
            here.call_soon_threadsafe(serves.set_result, (address, asyncio.get_running_loop(), over))
            await over.wait()
        front.close()

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
    async with standby() as (address, call), grpc.aio.insecure_channel(address) as channel:
        connect = channel.stream_stream(
            CONNECT, request_serializer=pb.ConnectRequest.SerializeToString, response_deserializer=pb.ConnectResponse.FromString
        )
        call(lambda: held.wait(LIMIT))
        try:
            calls = [connect(timeout=LIMIT) for _ in range(AGENTS)]
            for each in calls:
                with suppress(asyncio.InvalidStateError):  # it is ended already, and its code says how
                    await each.write(pb.ConnectRequest(heartbeat=pb.Heartbeat()))
        finally:
            held.set()
        codes = Counter(await asyncio.gather(*(each.code() for each in calls)))
    assert codes == {grpc.StatusCode.UNAVAILABLE: AGENTS}  # as nobody leads: that is the scheduler's word
