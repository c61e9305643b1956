"""What `Shares` tells of usage, and where there is nothing to be told."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from ebb.v1 import scheduler_pb2 as pb
from ebb.v1 import virtual_clusters_pb2

from scheduler_service.policies.shares import Share, Shares
from scheduler_service.rpc.services import shares as service
from tests.rpc.server import LIMIT, USER, Agent, Server, failure
from tests.rpc.test_requests import running
from tests.rpc.test_virtual_clusters import create, node, quota


def shares(server: Server, vc: str = "") -> Any:
    return server.scheduler.Shares(pb.SharesRequest(virtual_cluster=vc), timeout=LIMIT)


@pytest.fixture
def fair(database_url: str) -> Iterator[Server]:
    with Server(database_url, policy="fair", policy_settings={f"user.{USER}": 3, "project.vision": 2}) as made:
        yield made


def test_shares_usage_and_the_queue(fair: Server) -> None:
    with Agent(fair) as agent:
        agent.connect()
        running(fair, agent, devices=2, project="vision")
        none = fair.submit(devices=2)
        behind = fair.submit(devices=2, project="vision")
        told = shares(fair)
        assert [(share.project, share.user, share.shares) for share in told.shares] == [
            ("", "", 1),
            ("", USER, 3),
            ("vision", "", 2),
            ("vision", USER, 3),
        ]
        assert [(share.devices, share.queued) for share in told.shares] == [(0, 1), (0, 1), (2, 1), (2, 1)]
        assert [round(share.part_of_shares, 3) for share in told.shares] == [0.333, 1, 0.667, 1]
        assert [share.part_of_usage for share in told.shares] == [0, 0, 1, 1]
        assert [share.factor for share in told.shares] == [1, 1, pytest.approx(2**-1.5), 0.5]
        assert told.shares[2].device_hours > 0
        assert (told.queued, list(told.next_job_ids), told.more_shares) == (2, [none.id, behind.id], 0)
        assert told.half_life.seconds == 7 * 86400
        assert told.time.seconds > 0
        why = fair.scheduler.Explain(pb.ExplainRequest(job_id=behind.id), timeout=LIMIT).explanation
        assert "fair-share factor 0.500" in why.blockers[0].detail


def test_usage_outlives_the_scheduler(database_url: str) -> None:
    with Server(database_url, policy="fair") as first:
        with Agent(first) as agent:
            agent.connect()
            job = running(first, agent, devices=2)
            agent.exited(2, job.id)
            first.until(job.id, "SUCCEEDED")
        before = shares(first).shares[0].device_hours
    with Server(database_url, policy="fair") as second:
        assert 0 < shares(second).shares[0].device_hours <= before


def test_another_policy_says_which_one_has_shares(server: Server) -> None:
    said = failure(lambda: shares(server))
    assert (said.code, said.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_SHARES")
    assert said.text == (
        "the policy does not go by usage, so that there are no shares; "
        "`policy: fair` in the scheduler's configuration makes it fair"
    )
    assert failure(lambda: shares(server, "vision")).reason == "NO_VIRTUAL_CLUSTERS"


def test_each_virtual_cluster_has_shares_of_its_own(database_url: str) -> None:
    with Server(database_url, virtual_clusters=True, policy="fifo") as site, node(site, "n1") as agent:
        agent.connect()
        settings = {f"user.{USER}": 2.0, "user.Ann@example.org": 1.0}
        policy = virtual_clusters_pb2.VirtualClusterPolicy(name="fair", settings=settings)
        create(site, "vision", quota("node", 1), policy=policy)
        create(site, "speech")
        job = running(site, agent, devices=4, virtual_cluster="vision")
        waits = site.submit(devices=4, virtual_cluster="vision")
        told = shares(site, "vision")
        assert [(share.user, share.shares, share.devices, share.queued) for share in told.shares] == [
            ("", 1, 4, 1),
            (USER, 2, 4, 1),
        ]
        assert list(told.next_job_ids) == [waits.id]
        assert job.id != waits.id
        said = failure(lambda: shares(site, "speech"))
        assert (said.reason, said.text) == (
            "NO_SHARES",
            "the policy of speech, fifo, does not go by usage, so that there are no shares; "
            "`ebb vc update speech --policy fair` makes it fair",
        )
        assert failure(lambda: shares(site)).text == "say of which virtual cluster (--vc, or EBB_VC); there are: speech, vision"
        assert failure(lambda: shares(site, "sound")).reason == "NO_SUCH_VC"


@pytest.mark.parametrize("project", ["a/b", "-a", "x" * 65, "a b", "\0"])
def test_projects_that_cannot_be(server: Server, project: str) -> None:
    said = failure(lambda: server.submit(project=project))
    assert (said.code, said.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, "spec.project")


def test_the_project_is_kept_with_the_job(server: Server) -> None:
    assert server.get(server.submit(project="vision-2.1_a").id).spec.project == "vision-2.1_a"
    assert server.get(server.submit().id).spec.project == ""


def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_SHARES", 2)
    each = tuple(Share("", f"user {number}", 1, 0, 0, 0) for number in range(5))
    told = service._shares_out(Shares(0, 1, each, 0, ()))
    assert ([share.user for share in told.shares], told.more_shares) == (["user 0", "user 1"], 3)
