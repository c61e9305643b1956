"""Two schedulers on one database: what the one that stands by answers, whom it names, and how epochs are raised."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from sqlalchemy import Connection, text

from scheduler_service import store
from scheduler_service.rpc import backend
from scheduler_service.rpc.services.agent_link import AgentLink
from scheduler_service.run.engine_thread import NotLeading
from scheduler_service.run.ports import NotCommitted
from scheduler_service.store import SKIPPED
from tests.rpc.server import LIMIT, Agent, Server, failure
from tests.store.proxy import Proxy
from tests.store.waiting import wait_for

FROM_LEADER = (("ebb-read", "leader"),)


@pytest.fixture
def standby(server: Server, database_url: str) -> Iterator[Server]:
    with Server(database_url, leads=False) as made:
        yield made


def reads(server: Server, job_id: int) -> "dict[str, Callable[..., Any]]":
    """Every read, which may be given metadata."""
    return {
        "Get": lambda **o: server.scheduler.Get(scheduler_pb2.GetRequest(job_id=job_id), timeout=LIMIT, **o).job,
        "List": lambda **o: list(server.scheduler.List(scheduler_pb2.ListRequest(), timeout=LIMIT, **o).jobs),
        "Story": lambda **o: list(server.scheduler.Story(scheduler_pb2.StoryRequest(job_id=job_id), timeout=LIMIT, **o).events),
        "ListNodes": lambda **o: list(server.cluster.ListNodes(cluster_pb2.ListNodesRequest(), timeout=LIMIT, **o).nodes),
    }


def test_reads_are_answered_as_of_the_last_commit(server: Server, standby: Server, agent: Agent) -> None:
    running, ended, waiting = server.submit(devices=1), server.submit(devices=2), server.submit(devices=2)
    agent.orders()
    agent.started(1, running.id)
    assert agent.acknowledged() == 1
    server.cancel(ended.id)
    for job in (running, ended, waiting):
        theirs, ours = reads(standby, job.id), reads(server, job.id)
        for name, read in theirs.items():
            assert read() == ours[name](), name
    (node,) = standby.nodes()
    assert (node.name, node.free.devices, len(node.devices)) == ("n1", 1, 2)
    assert standby.get(running.id).state == job_pb2.JOB_STATE_RUNNING


def test_the_reason_of_a_job_that_waits_is_the_stored_one(server: Server, standby: Server, agent: Agent) -> None:
    server.submit(devices=2)
    first, second = server.submit(devices=2), server.submit(devices=2)
    assert standby.get(first.id) == server.get(first.id)
    assert server.get(second.id).reason == job_pb2.JOB_REASON_BEHIND
    assert standby.get(second.id).reason != job_pb2.JOB_REASON_BEHIND


def test_what_is_not_there_is_not_there(standby: Server) -> None:
    assert failure(lambda: standby.get(9)).reason == "NO_SUCH_JOB"


def test_everything_else_is_for_the_leader_who_is_named(server: Server, standby: Server) -> None:
    job = server.submit()
    with Agent(standby) as agent:
        calls: list[Callable[[], Any]] = [
            standby.submit,
            lambda: standby.cancel(job.id),
            agent.connect,
            lambda: next(standby.watch()),
            lambda: next(iter(standby.cluster.Watch(cluster_pb2.ClusterWatchRequest(), timeout=LIMIT))),
        ]
        for call in calls:
            said = failure(call)
            assert (said.code, said.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_LEADING")
            assert dict(said.info.metadata) == {"leader": server.address}
            assert server.address in said.text


def test_who_wants_the_leaders_answer_is_sent_there(server: Server, standby: Server) -> None:
    job = server.submit()
    for name, read in reads(standby, job.id).items():
        said = failure(lambda read=read: read(metadata=FROM_LEADER))
        assert (said.reason, dict(said.info.metadata)) == ("NOT_LEADING", {"leader": server.address}), name
    for read in reads(server, job.id).values():
        assert read(metadata=FROM_LEADER) is not None


def test_nobody_leads(conn: Connection, database_url: str) -> None:
    """Reads are answered whoever's answer is wanted, and nobody is named."""
    assert store.take(conn, "another", ttl=60)  # which says no address
    with Server(database_url, leads=False) as alone:
        assert reads(alone, 1)["List"](metadata=FROM_LEADER) == []
        said = failure(alone.submit)
        assert (said.reason, dict(said.info.metadata)) == ("NOT_LEADING", {})


def test_an_address_to_advertise(database_url: str) -> None:
    with (
        Server(database_url, advertise="ebb-1.example:7737") as leader,
        Server(database_url, leads=False) as standby,
    ):
        assert failure(standby.submit).info.metadata["leader"] == "ebb-1.example:7737"
        assert leader.submit().id == 1


def test_the_database_is_asked_who_leads_once_a_second_at_most(server: Server, standby: Server) -> None:
    asked = 0
    ask = standby.backend.reader.leader

    def counted() -> str:
        nonlocal asked
        asked += 1
        return ask()

    standby.backend.reader.leader = counted  # type: ignore[method-assign]
    now = [0.0]
    standby.backend.clock = lambda: now[0]
    for second in range(3):
        now[0] = 1000.0 + second
        for _ in range(5):
            assert failure(standby.submit).info.metadata["leader"] == server.address
    assert asked == 3


def test_without_a_database_it_says_so(database_url: str, conn: Connection) -> None:
    assert store.take(conn, "another", ttl=60)
    with Proxy(database_url) as proxy, Server(proxy.url, leads=False) as standby:
        assert standby.nodes() is not None
        proxy.refuse()
        wait_for(lambda: failure(standby.submit).reason == "DATABASE_UNAVAILABLE")
        for read in reads(standby, 1).values():
            said = failure(read)
            assert (said.code, said.reason) == (grpc.StatusCode.UNAVAILABLE, "DATABASE_UNAVAILABLE")
        proxy.mend()
        wait_for(lambda: failure(standby.submit).reason == "NOT_LEADING")


async def test_an_agent_is_heard_before_it_is_sent_to_the_leader() -> None:
    """One that is refused as it writes may be told by gRPC that its write failed, and not where the leader is."""
    heard = asyncio.Event()

    async def hello() -> AsyncIterator[link_pb.ConnectRequest]:
        heard.set()
        yield link_pb.ConnectRequest(hello=link_pb.Hello(node="n1"))

    standing_by = backend.Backend(None, "u", 0, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(NotLeading):
        await anext(AgentLink(standing_by, None).Connect(hello(), None))  # type: ignore[arg-type]
    assert heard.is_set()
    standing_by.close()


async def test_a_database_that_hangs_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "ASK_LIMIT", 0.05)
    hangs = threading.Event()

    class Reader:
        def leader(self) -> str:
            hangs.wait()
            return "h:1"

    asking = backend.Backend(Reader(), "u", 0, 1, 1)  # type: ignore[arg-type]
    for _ in range(2):
        assert isinstance(await asyncio.wait_for(asking.refer(), LIMIT), NotCommitted)
    closing = threading.Thread(target=asking.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive(), "the query's connection would come back to a pool that was closed"
    hangs.set()
    assert await asking.leader() == "h:1"
    await asyncio.to_thread(closing.join, LIMIT)
    assert not closing.is_alive()


def test_the_standby_leads_when_the_leader_leaves(server: Server, standby: Server) -> None:
    job = server.submit(request_id="r")
    server.stop()
    wait_for(lambda: standby.backend.leads, LIMIT)
    assert standby.submit(request_id="r").id == job.id
    assert standby.backend.leading.epoch == 2


def test_a_lease_that_ran_out_and_that_nobody_took_is_renewed(database_url: str) -> None:
    """As where the database is slow for longer than a lease: callers are refused meanwhile, and nobody leads anew."""
    with Proxy(database_url) as proxy, Server(proxy.url, lease=2) as server:
        leading = server.backend.leading
        proxy.hold("ebb lease")
        wait_for(lambda: server.backend.leads is None, LIMIT)
        assert failure(server.submit).code is grpc.StatusCode.UNAVAILABLE
        proxy.release()
        wait_for(lambda: server.backend.leads, LIMIT)
        assert server.backend.leads is leading
        assert server.submit().id == 1


def test_a_database_that_restarts_keeps_its_leader(database_url: str) -> None:
    """All sessions break. The standby has seen the leader's, and does not take that for the leader's end."""
    with Proxy(database_url) as proxy, Server(proxy.url) as server, Server(proxy.url, leads=False) as standby:
        leading = server.backend.leading
        for _ in range(2):
            wait_for(lambda: failure(standby.submit).info.metadata["leader"] == server.address, LIMIT)
            proxy.refuse()
            wait_for(lambda: failure(server.submit).reason == "DATABASE_UNAVAILABLE", LIMIT)
            proxy.mend()
            assert wait_for(lambda: submitted(server), LIMIT)
        assert (server.backend.leads, standby.backend.leads) == (leading, None)


def submitted(server: Server) -> bool:
    try:
        return bool(server.submit())
    except grpc.RpcError:
        return False


def test_an_agent_that_has_obeyed_a_higher_epoch_raises_ours(server: Server, conn: Connection) -> None:
    """As after a database was restored from a backup. Ids of jobs that may have been given are not given again."""
    cluster = server.backend.leading.cluster_id
    last = server.submit()
    seal = server.backend.leading.seals.seal_of(50)
    with Agent(server, cluster_id=cluster, epoch=50, seal=seal) as ahead:
        said = failure(ahead.connect)
        assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "OLD_EPOCH")
    leading = wait_for(lambda: (now := server.backend.leads) and now.epoch > 50 and now, LIMIT)
    assert (leading.epoch, leading.cluster_id) == (51, cluster)
    assert conn.execute(text("SELECT epoch FROM leader")).scalar() == 51
    with Agent(server, cluster_id=cluster, epoch=50, seal=seal) as again:
        welcome = again.connect()
        assert (welcome.epoch, welcome.seal) == (51, leading.seals.seal_of(51))
    assert server.submit().id == last.id + 1 + SKIPPED
    with Agent(server, cluster_id=cluster, epoch=2**63 - 1) as absurd:
        assert failure(absurd.connect).reason == "INVALID_FIELD"
    assert server.backend.leading.epoch == 51


def test_a_database_that_comes_back_without_its_last_commits(server: Server, conn: Connection) -> None:
    """As when it fails over to a copy that lagged: the scheduler does not go on from what it remembers."""
    kept, lost = server.submit(request_id="kept"), server.submit(request_id="lost")
    with conn.begin():
        conn.execute(text("DELETE FROM job_event WHERE job_id = :lost"), {"lost": lost.id})
        conn.execute(text("DELETE FROM job WHERE id = :lost"), {"lost": lost.id})
        conn.execute(text("UPDATE cluster SET next_job = :lost"), {"lost": lost.id})
        conn.execute(text("UPDATE leader SET commit_no = commit_no - 1"))
        sessions = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ebb writer'")
        assert conn.execute(sessions).all()
    epoch = server.backend.leading.epoch
    for _ in range(2):  # the connection is found broken, and then the database to be another
        assert failure(server.submit).code is grpc.StatusCode.UNAVAILABLE
    wait_for(lambda: (now := server.backend.leads) and now.epoch > epoch, LIMIT)
    again = server.submit(request_id="lost")
    assert again.id > SKIPPED > lost.id
    assert server.submit(request_id="kept").id == kept.id
    assert failure(lambda: server.get(lost.id)).reason == "NO_SUCH_JOB"


def test_only_an_agent_of_this_cluster_raises_it(server: Server) -> None:
    seal = server.backend.leading.seals.seal_of(50)
    for cluster_id in ("", "another"):
        with Agent(server, cluster_id=cluster_id, epoch=50, seal=seal) as stranger:
            assert failure(stranger.connect).reason in ("EPOCH_UNKNOWN", "OTHER_CLUSTER")
    assert (server.submit().id, server.backend.leading.epoch) == (1, 1)
