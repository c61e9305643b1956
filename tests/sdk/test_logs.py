"""Following a job's output over connections that break, and over its runs, through either client."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

import client_sdk as sdk
from client_sdk import AsyncClient, Client, testing
from client_sdk.testing import FakeCluster
from tests.sdk.contract import awaited
from tests.sdk.fake import Fake
from tests.sdk.test_async_client import until

CUT = grpc.StatusCode.UNAVAILABLE
TEXT = "één, zwei, 三, 🎉\n"
BYTES = TEXT.encode()


@pytest.fixture(params=["sync", "async"])
async def either(request: pytest.FixtureRequest, address: str) -> AsyncIterator[AsyncClient]:
    if request.param == "async":
        async with AsyncClient(address, timeout=0.5) as client:
            yield client
    else:
        with Client(address, timeout=0.5) as blocking:
            yield awaited(blocking)


async def read(client: AsyncClient, **options: bool | int) -> list[str]:
    return [piece async for piece in client.logs(1, **options)]  # type: ignore[arg-type]


def offsets(fake: Fake) -> list[tuple[int, int]]:
    return [(request.run, request.offset) for request in fake.log_requests]


async def test_it_goes_on_at_the_byte_where_a_connection_broke(either: AsyncClient, fake: Fake) -> None:
    """Characters of several bytes are cut between pieces, and between connections."""
    fake.log_answers = [
        [CUT],
        [b"", CUT],
        [b"", BYTES[:1], BYTES[1:2], CUT],
        [CUT],
        [b"", BYTES[2:17], grpc.StatusCode.CANCELLED],
        ["NODE_NOT_CONNECTED"],
        [b"", BYTES[17:19], BYTES[19:]],
    ]
    assert "".join(await read(either)) == TEXT
    assert offsets(fake) == [(0, 0), (0, 0), (1, 0), (1, 2), (1, 2), (1, 17), (1, 17)]
    assert "" not in TEXT.split()


async def test_the_runs_of_a_job_one_after_the_other(either: AsyncClient, fake: Fake) -> None:
    """An empty one among them; the job ends before a fourth. What is no whole character at the end of a run stays its own."""
    fake.log_answers = [[b"", b"one\xc3"], [b""], [b"", b"\xa9three", CUT], [b"", b"\n"], []]
    assert "".join(await read(either, follow=True)) == "one�" + "�three\n"
    assert offsets(fake) == [(0, 0), (2, 0), (3, 0), (3, 6), (4, 0)]
    assert all(request.follow for request in fake.log_requests)


async def test_one_run_is_one_run(either: AsyncClient, fake: Fake) -> None:
    fake.log_answers = [[b"", b"x"], [b"", b"y"]]
    assert await read(either, follow=True, run=3, task=2) == ["x"]
    assert await read(either) == ["y"]
    assert [(r.run, r.task, r.follow) for r in fake.log_requests] == [(3, 2, True), (0, 0, False)]


async def test_a_job_that_ends_without_a_run(either: AsyncClient, fake: Fake) -> None:
    fake.log_answers = [[]]
    assert await read(either, follow=True) == []


@pytest.mark.parametrize("noticed", ["while it is read", "after a broken connection"])
async def test_a_log_that_its_job_cut_short_is_read_from_its_beginning(either: AsyncClient, fake: Fake, noticed: str) -> None:
    told: list[list[bytes | str | grpc.StatusCode]] = {
        "while it is read": [[b"", b"old\xc3", "OFFSET"]],
        "after a broken connection": [[b"", b"old\xc3", CUT], ["OFFSET"]],
    }[noticed]
    fake.log_answers = [*told, [b"", b"new"], []]
    assert "".join(await read(either, follow=True)) == "old�new"
    assert offsets(fake)[-2:] == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("reason", "error"),
    [("LOG_GONE", sdk.NotFound), ("NOT_STARTED", sdk.FailedPrecondition), ("TOO_MANY_LOGS", sdk.ResourceExhausted)],
)
@pytest.mark.parametrize("before", [[], [[b"", b"x", CUT]]])
@pytest.mark.parametrize("follow", [False, True])
async def test_what_will_not_get_better_is_raised(
    either: AsyncClient, fake: Fake, reason: str, error: type[sdk.EbbError], before: list[list[bytes]], follow: bool
) -> None:
    fake.log_answers = [*before, [reason]]  # type: ignore[list-item]
    with pytest.raises(error, match=f"the log says {reason}") as caught:
        await read(either, follow=follow)
    assert caught.value.reason == reason


async def test_a_node_that_is_away_is_waited_for_as_long_as_there_is_more_to_come(either: AsyncClient, fake: Fake) -> None:
    """Where its run is over, the node may never return: that is waited for as long as any call."""

    def away(over: str) -> list[list[str]]:
        return [[f"NODE_NOT_CONNECTED {over}"]] * 10

    fake.log_answers = [[b"", b"x", CUT], *away("false"), [b"", b"y"], []]  # type: ignore[list-item]
    assert "".join(await read(either, follow=True)) == "xy"
    fake.log_answers = [*away("false"), [b"", b"y"], []]  # type: ignore[list-item]
    assert "".join(await read(either, follow=True)) == "y", "also where it was away from the beginning"
    fake.log_answers = [*away("false") * 100]  # type: ignore[list-item]
    with pytest.raises(sdk.Unavailable, match=r"the log says NODE_NOT_CONNECTED false$"):
        await read(either)
    assert fake.log_answers, "it gave up: what is there now was asked for"


@pytest.mark.parametrize("first", [[], [[b"", b"x", CUT]]])
async def test_a_run_whose_output_is_lost_with_its_node_is_left_for_the_next(
    either: AsyncClient, fake: Fake, first: list[list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    """Where there is none, that is an error."""

    async def before_and(answers: list[list[bytes]]) -> str:
        fake.log_answers = [*first, *answers]  # type: ignore[list-item]
        fake.log_lost = set() if first else {1}
        pieces = []
        async for piece in either.logs(1, follow=True):
            pieces.append(piece)
            fake.log_lost = {1}
        return "".join(pieces)

    assert await before_and([[b"", b"y"], []]) == ("xy" if first else "y")
    assert [run for run, _ in offsets(fake)[-2:]] == [2, 3]
    assert "what it wrote there is left out" in caplog.text
    with pytest.raises(sdk.Unavailable, match=r"the log says NODE_NOT_CONNECTED true$") as caught:
        await before_and([[]])
    assert (caught.value.reason, offsets(fake)[-1]) == ("NODE_NOT_CONNECTED", (2, 0))


def test_without_follow_a_refusal_comes_at_once(address: str, fake: Fake) -> None:
    fake.log_answers = [["LOG_GONE"], ["LOG_GONE"]]
    with Client(address) as client:
        with pytest.raises(sdk.NotFound):
            client.logs(1)
        following = client.logs(1, follow=True)
        with pytest.raises(sdk.NotFound):
            next(following)


# ---- the cluster for users' tests --------------------------------------------------------------------------------------


@pytest.fixture(params=["sync", "async"])
async def by_hand(request: pytest.FixtureRequest) -> AsyncIterator[tuple[FakeCluster, AsyncClient]]:
    with testing.cluster(by_hand=True) as fake:
        async with fake.async_client() as client:
            yield fake, client if request.param == "async" else awaited(fake.client())


async def test_the_fake_cluster_breaks_logs_as_it_breaks_watches(by_hand: tuple[FakeCluster, AsyncClient]) -> None:
    fake, client = by_hand
    job = await client.submit(["true"])
    fake.start(job)
    pieces = client.logs(job.id, follow=True)
    following = asyncio.create_task(anext(pieces))
    for calls in (1, 2):
        await until(lambda n=calls: (fake.calls["Logs"], fake.watches) == (n, 1))
        fake.cut_watches()
    with fake.unavailable():
        await until(lambda: fake.calls["Logs"] >= 4)
    fake.fail_next(call="Logs")
    fake.finish(job, output=TEXT)
    assert await following == TEXT
    assert await anext(pieces, None) is None
    await until(lambda: fake.watches == 0)
    fake.fail_next(call="Logs", error=sdk.NotFound)
    with pytest.raises(sdk.NotFound, match="the test wants it so"):
        await anext(client.logs(job.id))


async def test_leaving_a_followed_log_ends_it(by_hand: tuple[FakeCluster, AsyncClient]) -> None:
    fake, client = by_hand
    job, trial = await client.submit(["true"]), await client.submit(["true"], job_class="trial")
    fake.start(job)
    fake.preempt(job, for_=trial, leaves=False)
    fake.finish(job, 143, output="some\n")
    pieces = client.logs(job.id, follow=True)
    assert await anext(pieces) == "some\n"
    await pieces.aclose()  # type: ignore[attr-defined]
    await until(lambda: fake.watches == 0)
