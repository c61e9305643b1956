"""The mini-batch times of runs: who is told, and what is refused."""

from math import nan
from typing import Any

import pytest
from ebb.agent.v1 import agent_link_pb2 as link_pb
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration

from tests.rpc.server import LIMIT, Agent, Server, failure
from tests.store.waiting import wait_for


def mini_batch(job_id: int, **fields: Any) -> job_pb2.MiniBatch:
    given = {"run": 1, "time": Duration(nanos=500_000_000), "confidence": 0.75, "source": job_pb2.MINI_BATCH_SOURCE_POWER}
    return job_pb2.MiniBatch(job_id=job_id, **(given | fields))


def test_job_and_node_have_the_last(server: Server, agent: Agent) -> None:
    job = server.submit()
    agent.orders()
    agent.send(observations=link_pb.Observations(mini_batches=[mini_batch(job.id), mini_batch(77)]))
    found = wait_for(lambda: list(server.get(job.id).mini_batches), LIMIT)
    assert found == [mini_batch(job.id)]
    node = server.cluster.GetNode(cluster_pb2.GetNodeRequest(node="n1"), timeout=LIMIT)
    assert list(node.observations.mini_batches) == [mini_batch(job.id)], "not of a job that does not run there"


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": None},
        {"time": Duration()},
        {"time": Duration(seconds=316_224_001)},
        {"confidence": 1.5},
        {"confidence": nan},
        {"source": 0},
        {"source": 99},
    ],
)
def test_what_cannot_be_is_refused(agent: Agent, wrong: dict[str, Any]) -> None:
    agent.send(observations=link_pb.Observations(mini_batches=[mini_batch(1, **wrong)]))
    assert failure(lambda: agent.receive("desired_runs")).reason == "INVALID_FIELD"
