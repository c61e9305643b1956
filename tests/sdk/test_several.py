"""A client that was given several schedulers: it finds the one that leads, and follows when another takes over."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from ebb.v1 import job_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

import client_sdk as sdk
from client_sdk import AsyncClient, Client, JobState
from client_sdk._transport.access import Access
from client_sdk._transport.statuses import shorten
from client_sdk._transport.wire import Peer
from examples.cluster import free_port
from tests.sdk.fake import Fake, serve, until


class Scheduler(Fake):
    """One of several that share what they know. Where another leads, it says so (`leader`), or nothing."""

    def __init__(self, shared: "Scheduler | None" = None) -> None:
        super().__init__()
        self.leads = True
        self.leader = ""
        self.asked: list[tuple[str, bool]] = []
        """Each call, and whether it wanted the leader's answer."""
        if shared is not None:
            self.jobs, self.commits, self.requests, self.changed = shared.jobs, shared.commits, shared.requests, shared.changed

    def _enter(self, name: str, context: grpc.ServicerContext) -> None:
        wants_leader = ("ebb-read", "leader") in context.invocation_metadata()
        self.asked.append((name, wants_leader))
        if not self.leads and (wants_leader or name not in ("Get", "List")):
            info = AnyMessage()
            metadata = {"leader": self.leader} if self.leader else {}
            info.Pack(error_details_pb2.ErrorInfo(reason="NOT_LEADING", domain="ebb", metadata=metadata))
            status = status_pb2.Status(code=14, message="this scheduler stands by", details=[info])
            context.abort_with_status(rpc_status.to_status(status))
        super()._enter(name, context)

    def Submit(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        if not self.leads:
            self._enter("Submit", context)
        return super().Submit(request, context)


@pytest.fixture
def pair() -> "Iterator[tuple[Scheduler, Scheduler, str, str]]":
    """Two that serve, the first of which leads, and where they are."""
    first = Scheduler()
    second = Scheduler(first)
    with ExitStack() as stack:
        a, b = stack.enter_context(serve(first)), stack.enter_context(serve(second))
        second.leads, second.leader = False, a
        yield first, second, a, b


def test_a_submit_goes_where_the_standby_says(pair: "tuple[Scheduler, Scheduler, str, str]") -> None:
    first, second, _, b = pair
    with Client(b) as client:  # it knows of the standby alone
        job = client.submit(["true"])
        assert client.get(job.id).id == job.id
    assert [name for name, _ in second.asked] == ["Submit"]
    assert [name for name, _ in first.asked] == ["Submit", "Get"]


def test_reads_go_to_the_leader_unless_the_client_says_otherwise(pair: "tuple[Scheduler, Scheduler, str, str]") -> None:
    first, second, a, b = pair
    job = job_pb2.Job(id=1, state=1)
    first.put(job)
    with Client(f"{b},{a}") as client:
        assert client.get(1).id == 1
    assert second.asked == [("Get", True)]
    assert first.asked == [("Get", True)]
    with Client(f"{b},{a}", standby_reads=True) as client:
        assert client.get(1).id == 1
        assert second.asked[1:] == [("Get", False)]
        assert client.submit(["true"]).id == 2
        with client.another() as other:
            assert other.get(1).id == 1
    assert second.asked[-1] == ("Get", False)


def test_the_address_may_come_from_the_environment(
    pair: "tuple[Scheduler, Scheduler, str, str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, a, b = pair
    monkeypatch.setenv("EBB_ADDRESS", f"{b}, {a}")
    with Client() as client:
        assert client.submit(["true"]).id == 1


def test_one_that_is_gone_is_passed_over(pair: "tuple[Scheduler, Scheduler, str, str]") -> None:
    first, _, a, _ = pair
    with Client(f"127.0.0.1:{free_port()},{a}") as client:
        assert client.submit(["true"]).id == 1
        assert client.submit(["true"]).id == 2
    assert [name for name, _ in first.asked] == ["Submit", "Submit"]


def test_a_named_leader_that_is_gone_is_given_up_again(pair: "tuple[Scheduler, Scheduler, str, str]") -> None:
    """Until the lease has run out, a standby names a leader that is dead."""
    _, second, _, b = pair
    second.leader = f"127.0.0.1:{free_port()}"
    with ThreadPoolExecutor(1) as pool, Client(b) as client:
        job = pool.submit(client.submit, ["true"], request_id="r")
        until(lambda: len(second.asked) >= 3)
        second.leads = True
        assert job.result(30).id == 1
    assert len(second.requests) == 1


def test_a_submit_over_a_take_over_makes_one_job() -> None:
    """The leader commits, and dies before it answers; the same request reaches the next one."""
    first = Scheduler()
    second = Scheduler(first)
    first.fail["Submit"] = [grpc.StatusCode.UNAVAILABLE]
    with serve(first) as a, serve(second) as b, Client(f"{a},{b}") as client:
        job = client.submit(["true"])
    assert ([s.request_id for s in first.submits], len(first.jobs)) == ([s.request_id for s in second.submits], 1)
    assert job.id == 1


def test_a_watch_goes_on_at_the_next_leader(pair: "tuple[Scheduler, Scheduler, str, str]") -> None:
    first, second, a, b = pair
    first.put(job_pb2.Job(id=1, state=3))
    second.commit_no = first.commit_no
    with ThreadPoolExecutor(1) as pool, Client(f"{a},{b}") as client:
        waiting = pool.submit(client.wait, 1, 60)
        until(lambda: first.watches)
        first.leads, second.leads = False, True
        first.leader = b
        first.stopping = True
        with first.changed:
            first.changed.notify_all()
        until(lambda: second.watches)
        assert second.watches[0].after_commit == 1
        second.put(job_pb2.Job(id=1, state=6))
        assert waiting.result(30).state is JobState.SUCCEEDED


async def test_the_same_for_asyncio(pair: "tuple[Scheduler, Scheduler, str, str]") -> None:
    first, second, _, b = pair
    async with AsyncClient(b) as client:
        job = await client.submit(["true"])
        assert (await client.get(job.id)).id == job.id
        first.change(job.id, state=6)
        assert (await client.wait(job)).ended
    assert [name for name, _ in second.asked] == ["Submit"]
    async with AsyncClient(b, standby_reads=True) as client:
        assert (await client.get(1)).ended
    assert second.asked[-1] == ("Get", False)


def test_a_leader_that_is_named_as_nobody_here_knows_it_is_found_among_those_given(
    pair: "tuple[Scheduler, Scheduler, str, str]",
) -> None:
    """As from outside of a network of containers. Not even where it is given last."""
    first, second, a, b = pair
    second.leader = "scheduler-1.invalid:7737"
    gone = f"127.0.0.1:{free_port()}"
    with Client(f"{gone},{b},{a}") as client:
        assert client.submit(["true"]).id == 1
    assert [name for name, _ in first.asked] == ["Submit"]


def test_nobody_is_there_names_all() -> None:
    one, other = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with Client(f"{one},{other}", timeout=0.5) as client, pytest.raises(sdk.Unavailable, match=f"{one}, {other} cannot be"):
        client.get(1)


@pytest.mark.parametrize("address", [",", "a:1,", "a:1,,b:2", "a", "a:0", "a:65536", "a:b", "http://a:1", "a b:1"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(sdk.InvalidArgument, match="several with commas"):
        Client(address)


def test_a_scheduler_that_hangs_leaves_time_for_the_others() -> None:
    alone, three = Peer("a:1", 9.0, Access(), False), Peer("a:1,b:2,c:3", 9.0, Access(), False)
    assert 8 < alone.attempt_time(alone.deadline(None)) <= 9
    assert 2 < three.attempt_time(three.deadline(None)) <= 3
    assert three.attempt_time(three.deadline(2.0)) <= 1
    assert three.attempt_time(three.deadline(0.5)) <= 0.5


def test_threads_do_not_chase_each_other(pair: "tuple[Scheduler, Scheduler, str, str]") -> None:
    """Of several calls that failed at one address only the first moves on."""
    first, second, a, b = pair
    first.leads = False
    second.leads = True
    with Client(f"{a},{b}") as client:
        begin = threading.Barrier(8)

        def submit(_: int) -> int:
            begin.wait()
            return client.submit(["true"]).id

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(submit, range(8)))) == 8
        assert client._transport._peer.address == b


@pytest.mark.parametrize("number", ["", " (111)"])
def test_of_what_grpc_says_the_last_word_counts_in_all_its_versions(number: str) -> None:
    said = f"failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused{number}"
    assert shorten(said) == "Connection refused"
    assert shorten("DNS query failed: [UNKNOWN: Domain name not found]") == "Domain name not found"
    assert shorten("errors resolving x: [a; b]") == "[a; b]"


def test_what_answers_may_be_something_else() -> None:
    nothing = grpc.aio.Metadata()
    said = "Received http2 header with status: 404"
    other = grpc.aio.AioRpcError(grpc.StatusCode.UNIMPLEMENTED, nothing, nothing, details=said)
    peer = Peer("a:1", 1.0, Access(), False)
    refused = pytest.raises(sdk.Unavailable, match=f"what answers at a:1 is no scheduler of Ebb's \\({said}\\)")
    with refused, peer.translate_errors("Scheduler/List"):
        raise other
