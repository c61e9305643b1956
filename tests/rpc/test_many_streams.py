"""More watches than one connection takes: they go over several, and calls are answered meanwhile."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from client_sdk import AsyncClient, Client, InvalidArgument, JobState
from client_sdk._protobuf.calls import LARGEST_SPEC
from client_sdk._transport.channels import STREAMS_EACH
from scheduler_service.rpc import receiving
from scheduler_service.rpc import server as scheduler
from tests.rpc.server import LIMIT, Server

WAITS = scheduler.STREAMS_EACH + STREAMS_EACH
"""Enough for three connections."""


@pytest.fixture
def server(database_url: str) -> Iterator[Server]:
    with Server(database_url) as made:
        yield made


def test_the_sdk_keeps_to_what_the_scheduler_takes() -> None:
    assert STREAMS_EACH < scheduler.STREAMS_EACH
    assert LARGEST_SPEC == receiving.LARGEST_SPEC


async def test_any_number_of_tasks_may_wait(server: Server) -> None:
    async with asyncio.timeout(LIMIT), AsyncClient(server.address) as client:
        job = await client.submit(["true"])
        waits = [asyncio.create_task(client.wait(job)) for _ in range(WAITS)]
        transport = client._transport
        while sum(one.streams for one in transport._lines[server.address]._carriers) < WAITS:
            await asyncio.sleep(0.01)
        await client.cancel(job)  # is answered, though all of these wait
        ended = await asyncio.gather(*waits)
        assert {one.state for one in ended} == {JobState.CANCELLED}
        carriers = transport._lines[server.address]._carriers
        assert (len(carriers), sum(one.streams for one in carriers)) == (3, 0), "what has ended counts no more"
        await asyncio.gather(*(client.wait(job) for _ in range(WAITS)))
        assert len(carriers) == 3, "connections are used again"


def test_any_number_of_threads_may_wait(server: Server) -> None:
    waiting = threading.Barrier(WAITS + 1)

    def wait() -> JobState:
        waiting.wait(LIMIT)
        return client.wait(job).state

    with Client(server.address) as client, ThreadPoolExecutor(WAITS) as threads:
        job = client.submit(["true"])
        waits = [threads.submit(wait) for _ in range(WAITS)]
        waiting.wait(LIMIT)
        client.cancel(job)
        assert {one.result(LIMIT) for one in waits} == {JobState.CANCELLED}


def test_a_spec_that_no_scheduler_takes_is_not_sent(server: Server) -> None:
    with Client(server.address) as client, pytest.raises(InvalidArgument, match=r"has 1100\d{3} bytes.*--snapshot"):
        client.submit(["true"], env={f"DATA_{i}": "x" * 100_000 for i in range(11)})
