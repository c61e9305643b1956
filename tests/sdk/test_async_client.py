"""What is asyncio's own about the client; what both clients do is in the contract."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from math import ceil
from typing import Any

import grpc
import pytest
from ebb.v1 import job_pb2

import client_sdk as sdk
from client_sdk import AsyncClient, JobState, testing
from client_sdk._transport.channels import STREAMS_EACH
from client_sdk.testing import FakeCluster
from tests.sdk.fake import Fake, serve


@pytest.fixture
def by_hand() -> Iterator[FakeCluster]:
    with testing.cluster(by_hand=True) as fake:
        yield fake


async def until(condition: Any) -> None:
    """Waits for what another task or thread is to do."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("error", [sdk.Unavailable, sdk.DeadlineExceeded, sdk.Cancelled])
@pytest.mark.parametrize("after", [False, True])
async def test_a_retried_submit_makes_one_job(by_hand: FakeCluster, error: type[sdk.EbbError], after: bool) -> None:
    by_hand.fail_next(2, error, after=after)
    async with by_hand.async_client() as client:
        job = await client.submit(["true"])
    assert (by_hand.calls, [j.id for j in by_hand.jobs]) == ({"Submit": 3}, [job.id])


async def test_errors_that_will_not_go_away_are_not_retried(by_hand: FakeCluster) -> None:
    by_hand.fail_next(error=sdk.ResourceExhausted)
    async with by_hand.async_client() as client:
        with pytest.raises(sdk.ResourceExhausted, match="try again later"):
            await client.submit(["true"])
    assert by_hand.calls == {"Submit": 1}


async def test_nobody_there() -> None:
    async with AsyncClient("127.0.0.1:1", timeout=0.3) as client:
        with pytest.raises(sdk.Unavailable, match=r"127\.0\.0\.1:1 cannot be reached.*EBB_ADDRESS"):
            await client.get(1)
        with pytest.raises(sdk.Unavailable):
            await client.wait(1, timeout=0.3)


def test_it_belongs_to_one_event_loop(address: str) -> None:
    client = AsyncClient(address)

    async def look() -> None:
        assert not [job async for job in client.list()]

    asyncio.run(look())
    with pytest.raises(sdk.FailedPrecondition, match="belongs to another event loop; make one in each"):
        asyncio.run(look())


FORKS = """
import asyncio, os
from client_sdk import AsyncClient, Client, FailedPrecondition
from tests.sdk.fake import Fake, serve

async def look():
    async with AsyncClient(address) as client:
        return [job.id async for job in client.list()]

def in_a_fork(act):
    if not (child := os.fork()):
        os._exit(0 if act() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def refused():
    try:
        asyncio.run(asyncio.wait_for(look(), 10))
    except FailedPrecondition as error:
        return "use Client here" in str(error)

async def fork_while_connected():
    async with AsyncClient(address) as client:
        await client.nodes()
        return in_a_fork(refused)

with serve(Fake()) as address:
    print(asyncio.run(fork_while_connected()))
    print(in_a_fork(lambda: asyncio.run(look()) == []))
"""


def test_a_process_that_was_forked_while_one_was_connected_is_told_so() -> None:
    """It would wait for ever, whatever its timeout. One that was forked afterwards can use its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GRPC_ENABLE_FORK_SUPPORT": "1"}
    run = [sys.executable, "-W", "ignore", "-c", FORKS]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "0\n0\n", done.stderr


async def test_many_waits_share_few_channels(by_hand: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = grpc.aio.insecure_channel

    def counted(address: str, **options: Any) -> Any:
        made.append(address)
        return real(address, **options)

    monkeypatch.setattr(grpc.aio, "insecure_channel", counted)
    async with by_hand.async_client() as client:
        jobs = [await client.submit(["true"]) for _ in range(100)]
        waits = [asyncio.create_task(client.wait(job)) for job in jobs]
        await until(lambda: by_hand.watches == 100)
        for job in reversed(jobs):
            by_hand.finish(job, job.id % 2)
        ended = await asyncio.gather(*waits)
    assert [(job.id, job.exit_code) for job in ended] == [(job.id, job.id % 2) for job in jobs]
    assert made == [by_hand.address] * ceil(100 / STREAMS_EACH)


async def test_waits_go_on_over_broken_connections(by_hand: FakeCluster) -> None:
    async with by_hand.async_client() as client:
        job = await client.submit(["true"])
        waiting = asyncio.create_task(client.wait(job))
        for seen in (1, 2):
            await until(lambda n=seen: by_hand.calls["Watch"] == n and by_hand.watches == 1)
            by_hand.cut_watches()
        with by_hand.unavailable():
            await until(lambda: by_hand.calls["Watch"] >= 3)
        by_hand.finish(job, 4)
        assert (await waiting).exit_code == 4


async def test_wait_over_a_restart_of_the_scheduler() -> None:
    fake = Fake()
    fake.put(job_pb2.Job(id=1, state=job_pb2.JOB_STATE_RUNNING))
    with serve(fake) as address:
        client = AsyncClient(address)
        waiting = asyncio.create_task(client.wait(1))
        await until(lambda: fake.watches)
    fake.change(1, state=7, exit_code=3)
    with serve(fake, int(address.rpartition(":")[2])):
        async with client:
            assert (await waiting).exit_code == 3


async def test_a_cancelled_task_leaves_nothing_behind(by_hand: FakeCluster) -> None:
    async with by_hand.async_client() as client:
        job = await client.submit(["true"])
        waiting = asyncio.create_task(client.wait(job))
        following = asyncio.create_task(anext(client.logs(job.id, follow=True)))
        await until(lambda: by_hand.watches == 2)
        for task in (waiting, following):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: by_hand.watches == 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.wait(job)
        await until(lambda: by_hand.watches == 0)
        by_hand.finish(job)
        assert (await client.wait(job)).ended


async def test_a_cancelled_task_gives_up_trying(by_hand: FakeCluster) -> None:
    async with by_hand.async_client() as client:
        with by_hand.unavailable():
            asking = asyncio.create_task(client.submit(["true"]))
            await until(lambda: by_hand.calls["Submit"] >= 2)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert by_hand.jobs == []


async def test_leaving_a_watch_ends_it(by_hand: FakeCluster) -> None:
    async with by_hand.async_client() as client:
        async with aclosing(client.watch()) as updates:
            assert (await anext(updates)).snapshot
            assert by_hand.watches == 1
        await until(lambda: by_hand.watches == 0)


async def test_closing_the_client_ends_what_is_under_way(by_hand: FakeCluster) -> None:
    client = by_hand.async_client()
    job = await client.submit(["true"])
    waiting = asyncio.create_task(client.wait(job))
    await until(lambda: by_hand.watches == 1)
    watch = client.watch()
    await anext(watch)
    by_hand.fail_next(1000, call="Get")
    asking = asyncio.create_task(client.get(job.id))
    await until(lambda: by_hand.calls["Get"] >= 1)
    await client.close()
    for ended in (waiting, asking, anext(watch)):
        with pytest.raises((sdk.Cancelled, sdk.FailedPrecondition), match="closed"):
            await ended
    await client.close()
    with pytest.raises(sdk.FailedPrecondition, match="closed"):
        await client.get(1)


async def test_logs_follow_a_job_over_its_runs(by_hand: FakeCluster) -> None:
    got: list[str] = []
    async with by_hand.async_client() as client:
        job, trial = await client.submit(["true"]), await client.submit(["true"], job_class="trial")

        async def follow() -> None:
            async for piece in client.logs(job.id, follow=True):
                got.append(piece)

        following = asyncio.create_task(follow())
        by_hand.start(job)
        by_hand.preempt(job, for_=trial, leaves=False)
        by_hand.finish(job, 143, output="one ü\n")
        await until(lambda: got == ["one ü\n"])
        by_hand.start(job)
        assert by_hand.finish(job, output="two\n").state is JobState.SUCCEEDED
        await following
        assert [piece async for piece in client.logs(job.id)] == ["two\n"]
    assert got == ["one ü\n", "two\n"]


async def test_following_ends_with_what_ends_the_watch(by_hand: FakeCluster) -> None:
    client = by_hand.async_client()
    job = await client.submit(["true"])
    following = asyncio.create_task(anext(client.logs(job.id, follow=True)))
    await until(lambda: by_hand.watches == 1)
    await client.close()
    with pytest.raises(sdk.Cancelled, match="closed"):
        await following
