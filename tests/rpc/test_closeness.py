"""How close the devices of a job are to each other, as Get and Explain say it."""

from typing import Any

import pytest
from ebb.v1 import cluster_pb2, scheduler_pb2

from tests.rpc.server import LIMIT, Agent, Server

PATHS = [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)]


def grow_tree(agent: Agent, **more: Any) -> None:
    """The node has two sockets of two switches of two devices."""
    del agent.hello.devices[:]
    agent.hello.levels.extend(["socket", "switch"])
    agent.hello.devices.extend(cluster_pb2.Device(index=i, uuid=f"n1-{i}", path=path, **more) for i, path in enumerate(PATHS))


def said(server: Server, job_id: int) -> tuple[int, int, str, bool] | None:
    got = server.scheduler.Get(scheduler_pb2.GetRequest(job_id=job_id), timeout=LIMIT).job
    explained = server.scheduler.Explain(scheduler_pb2.ExplainRequest(job_id=job_id), timeout=LIMIT).job
    assert got.closeness == explained.closeness
    found = got.closeness
    return (found.devices, found.nodes, found.within, found.nvlink) if got.HasField("closeness") else None


@pytest.mark.parametrize("linked", [False, True])
def test_the_smallest_part_of_the_node_that_has_them_is_named(server: Server, linked: bool) -> None:
    with Agent(server, devices=8) as agent:
        grow_tree(agent, **({"link_domain": 0} if linked else {}))
        agent.connect()
        one = server.submit(devices=1)
        assert said(server, one.id) is None
        pair, three, rest = (server.submit(devices=count) for count in (2, 3, 2))
        assert [list(job.devices) for job in (one, pair, three, rest)] == [[0], [2, 3], [4, 5, 6], [1, 7]]
        assert said(server, pair.id) == (2, 1, "switch", linked)
        assert said(server, three.id) == (3, 1, "socket", linked)
        assert said(server, rest.id) == (2, 1, "node", linked)
        waits = server.submit(devices=2)
        assert said(server, waits.id) is None
