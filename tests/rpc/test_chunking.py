"""What users submit is as large as they like, within limits: answers, watches and orders come in pieces that anybody takes."""

from itertools import chain
from typing import Any, NamedTuple

import pytest
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2

from client_sdk import Client
from scheduler_service.rpc.chunking import chunks
from scheduler_service.rpc.services import cluster
from tests.rpc.server import LIMIT, Agent, Server, closing, failure

LARGE = {"environment": {f"V{i}": "x" * 100_000 for i in range(9)}}


class Part(NamedTuple):
    size: int

    def ByteSize(self) -> int:  # noqa: N802
        return self.size


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], [[]]),
        ([3, 3, 4], [[3, 3, 4]]),
        ([3, 3, 5], [[3, 3], [5]]),
        ([50, 1, 50], [[50], [1], [50]]),
        ([1, 1, 1, 1, 1], [[1, 1, 1], [1, 1]]),
    ],
)
def test_a_piece_is_no_larger_than_it_must_be(sizes: list[int], expected: list[list[int]]) -> None:
    assert [[part.size for part in piece] for piece in chunks(sizes, Part, largest=10, most=3)] == expected


def test_pieces_are_made_as_they_are_asked_for() -> None:
    made: list[int] = []

    def make(size: int) -> Part:
        made.append(size)
        return Part(size)

    ten_each = chunks([10, 11, 12, 13], make, largest=10)
    next(ten_each)
    assert made == [10, 11]


def test_a_page_of_large_jobs_is_short(server: Server) -> None:
    ids = [server.submit(**LARGE).id for _ in range(11)]
    found: list[int] = []
    token, pages = "", 0
    while pages == 0 or token:
        request = scheduler_pb2.ListRequest(page_size=1000, page_token=token)
        page = server.scheduler.List(request, timeout=LIMIT)
        assert page.ByteSize() < 5 << 20
        found += [job.id for job in page.jobs]
        token, pages = page.next_page_token, pages + 1
    assert found == ids[::-1]
    assert pages == 3


def test_nodes_come_in_pages(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def pages(size: int) -> list[list[str]]:
        found: list[list[str]] = []
        token = ""
        while not found or token:
            page = server.cluster.ListNodes(cluster_pb2.ListNodesRequest(page_size=size, page_token=token), timeout=LIMIT)
            found.append([node.name for node in page.nodes])
            token = page.next_page_token
        return found

    assert pages(0) == [[]]
    with Agent(server, "n1") as one, Agent(server, "n2") as two, Agent(server, "n3") as three, Client(server.address) as client:
        for agent in (one, two, three):
            agent.connect()
        assert pages(2) == [["n1", "n2"], ["n3"]]
        assert pages(3) == pages(0) == [["n1", "n2", "n3"]]
        monkeypatch.setattr(cluster, "LARGEST_BYTES", 1)
        assert pages(3) == [["n1"], ["n2"], ["n3"]], "large nodes make small pages"
        assert [node.name for node in client.nodes()] == ["n1", "n2", "n3"]
        with closing(server.cluster.Watch(cluster_pb2.ClusterWatchRequest(), timeout=LIMIT)) as updates:
            first = [next(updates)]
            while not first[-1].commit_no:
                first.append(next(updates))
        assert [update.snapshot for update in first] == [True] + [False] * (len(first) - 1)
        assert [node.name for update in first for node in update.nodes] == ["n1", "n2", "n3"]


def test_pages_of_small_jobs_are_full(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler_service.rpc.services.scheduler.AT_ONCE", 3)
    ids = [server.submit().id for _ in range(9)]
    first = server.scheduler.List(scheduler_pb2.ListRequest(page_size=8), timeout=LIMIT)
    assert [job.id for job in first.jobs] == ids[:0:-1]
    second = server.scheduler.List(scheduler_pb2.ListRequest(page_size=8, page_token=first.next_page_token), timeout=LIMIT)
    assert ([job.id for job in second.jobs], second.next_page_token) == (ids[:1], "")
    exactly = server.scheduler.List(scheduler_pb2.ListRequest(page_size=9), timeout=LIMIT)
    assert (len(exactly.jobs), exactly.next_page_token) == (9, "")


def test_a_snapshot_comes_in_pieces_of_which_the_last_has_the_token(server: Server) -> None:
    ids = [server.submit(**LARGE).id for _ in range(9)]
    with closing(server.watch()) as updates:
        first, second, third = (next(updates) for _ in range(3))
    assert [message.snapshot for message in (first, second, third)] == [True, False, False]
    assert [job.id for job in chain(first.jobs, second.jobs, third.jobs)] == ids
    assert (first.commit_no, second.commit_no) == (0, 0)
    assert third.commit_no == server.backend.leading.view.commit_no


def test_orders_come_in_pieces(server: Server) -> None:
    """To an agent that is there, and to one that connects."""
    groups = [job_pb2.TaskGroup(count=15, resources=job_pb2.Resources(cpu_milli=100, memory_mib=1))]
    with Agent(server) as agent:
        agent.connect()
        job = server.submit(task_groups=groups, cpu_milli=0, **LARGE)
        assert tasks(agent, 15) == list(range(15))
    with Agent(server) as again:
        again.connect()
        assert tasks(again, 15) == list(range(15))
    assert server.get(job.id).run == 1


def tasks(agent: Agent, count: int) -> list[int]:
    """Of the starts that an agent is told, in messages that none has all of."""
    told: list[Any] = []
    while len(told) < count:
        orders = agent.orders()
        assert len(orders) < 6
        told += orders
    return [order.task for order in told]


def test_a_gang_whose_tasks_are_too_much_together_is_refused(server: Server) -> None:
    groups = [job_pb2.TaskGroup(count=80, resources=job_pb2.Resources(cpu_milli=1, memory_mib=1))]
    why = failure(lambda: server.submit(task_groups=groups, cpu_milli=0, **LARGE))
    assert why.reason == "INVALID_FIELD"
    assert "with 80 tasks it must be at most 838860 bytes, for each is sent a copy" in why.text
