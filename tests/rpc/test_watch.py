"""The streams for readers: a snapshot, then every change after its commit, and on from a commit number."""

from typing import Any

import grpc
import pytest
from ebb.v1 import cluster_pb2, job_pb2

from scheduler_service.run import read_model as view
from tests.rpc.server import LIMIT, Agent, Server, closing, failure

QUEUED, STARTING, RUNNING = job_pb2.JOB_STATE_QUEUED, job_pb2.JOB_STATE_STARTING, job_pb2.JOB_STATE_RUNNING
SUCCEEDED, CANCELLED = job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_CANCELLED


def shown(message: Any) -> tuple[bool, list[tuple[int, int]]]:
    return message.snapshot, [(job.id, job.state) for job in message.jobs]


def test_a_snapshot_then_what_changes(server: Server) -> None:
    server.submit()
    with closing(server.watch()) as updates:
        first = next(updates)
        assert shown(first) == (True, [(1, QUEUED)])
        server.submit()
        second = next(updates)
        assert shown(second) == (False, [(2, QUEUED)])
        server.cancel(1)
        third = next(updates)
        assert not third.snapshot
        assert shown(third)[1][0] == (1, CANCELLED)
    numbers = [first.commit_no, second.commit_no, third.commit_no]
    assert numbers == sorted(set(numbers))
    with closing(server.watch()) as updates:
        assert shown(next(updates)) == (True, [(2, QUEUED)])


def test_of_one_job(server: Server, agent: Agent) -> None:
    job = server.submit(devices=1)
    with closing(server.watch(job.id)) as updates:
        assert shown(next(updates)) == (True, [(1, STARTING)])
        server.submit()  # another's changes are not told
        agent.started(1, job.id)
        assert shown(next(updates)) == (False, [(1, RUNNING)])
        agent.exited(2, job.id)
        assert shown(next(updates)) == (False, [(1, SUCCEEDED)])
    with closing(server.watch(job.id)) as updates:
        message = next(updates)
        assert shown(message) == (True, [(1, SUCCEEDED)])
        assert message.jobs[0].HasField("end_time")


def test_on_from_a_commit(server: Server) -> None:
    server.submit()
    with closing(server.watch()) as updates:
        token = next(updates).commit_no
    server.submit()
    server.cancel(1)
    server.submit()
    with closing(server.watch(after_commit=token)) as updates:
        message = next(updates)
        assert shown(message) == (False, [(1, CANCELLED), (2, QUEUED), (3, QUEUED)])
        token = message.commit_no
    with closing(server.watch(after_commit=token)) as updates:
        server.submit()
        assert shown(next(updates)) == (False, [(4, QUEUED)])


def test_from_a_commit_that_is_not_kept(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "KEPT_COMMITS", 3)
    with Server(database_url) as server:
        server.submit()
        with closing(server.watch()) as updates:
            token = next(updates).commit_no
        for _ in range(5):
            server.submit()
        with closing(server.watch(after_commit=token)) as updates:
            fresh = next(updates)
            assert shown(fresh) == (True, [(i, QUEUED) for i in range(1, 7)])
        with closing(server.watch(after_commit=fresh.commit_no - 2)) as updates:
            assert shown(next(updates)) == (False, [(5, QUEUED), (6, QUEUED)])
        with closing(server.watch(after_commit=fresh.commit_no + 100)) as updates:  # of another life of this database
            assert next(updates).snapshot


def test_over_a_restart_of_the_service(server: Server, database_url: str) -> None:
    server.submit()
    with closing(server.watch()) as updates:
        token = next(updates).commit_no
        server.backend.leading.service.stop()
        said = failure(lambda: next(updates))
        assert (said.code, said.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_LEADING")
    server.stop()
    with Server(database_url) as again, closing(again.watch(after_commit=token)) as updates:
        again.submit()
        assert {job.id for job in next(updates).jobs} >= {2}


def test_of_nodes(server: Server) -> None:
    with closing(server.cluster.Watch(cluster_pb2.ClusterWatchRequest(), timeout=LIMIT)) as updates:
        first = next(updates)
        assert (first.snapshot, list(first.nodes)) == (True, [])
        with Agent(server) as agent:
            agent.connect()
            (node,) = next(updates).nodes
            assert (node.name, node.state, node.free.devices) == ("n1", cluster_pb2.NODE_STATE_UP, 2)
            job = server.submit(devices=1)
            (node,) = next(updates).nodes
            assert node.free.devices == 1
            assert [(group.device, list(group.job_ids)) for group in node.share_groups] == [(0, [job.id])]


def test_watching_a_job_that_has_ended_tells_its_end_whatever_is_known_already(server: Server) -> None:
    job = server.submit()
    server.cancel(job.id)
    for after in (0, 10**6):
        (update,) = list(server.watch(job.id, after))
        assert [(seen.id, seen.state) for seen in update.jobs] == [(job.id, job_pb2.JOB_STATE_CANCELLED)]


def test_watching_a_job_ends_with_it(server: Server) -> None:
    job = server.submit()
    updates = server.watch(job.id)
    assert next(updates).snapshot
    server.cancel(job.id)
    assert [seen.state for update in updates for seen in update.jobs] == [job_pb2.JOB_STATE_CANCELLED]
