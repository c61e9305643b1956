"""A job with several configurations, from Submit to the agent: what is refused, what comes back, and what is launched."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration

from scheduler_service.core.model import JobSpec
from scheduler_service.rpc.convert.specs import spec_in, spec_out
from tests.rpc.server import LIMIT, Agent, Server, failure

CPUS = job_pb2.Resources(cpu_milli=2000, memory_mib=64)
GPUS = job_pb2.Resources(cpu_milli=1000, memory_mib=64, devices=1)
TASKS = job_pb2.TaskGroup(count=4096, resources=CPUS)
FULL = job_pb2.Configuration(
    resources=GPUS,
    cells=job_pb2.CellRequest(model="P100"),
    device_memory_mib=16_000,
    nodes=job_pb2.NodeRequest(names=["n1", "n2"], labels={"zone": "a"}, excluded=["n3"]),
    command=["python", "gpu.py"],
    environment={"LR": "0.1"},
    estimate=Duration(seconds=60),
)


@pytest.fixture
def agent(server: Server) -> Iterator[Agent]:
    """Of a node with two P100 and a label."""
    devices = [cluster_pb2.Device(index=i, uuid=f"n1-{i}", model="P100", memory_mib=16_000) for i in range(2)]
    with Agent(server, devices=2, labels={"zone": "a"}) as made:
        del made.hello.devices[:]
        made.hello.devices.extend(devices)
        made.connect()
        yield made


def configuration(resources: job_pb2.Resources = CPUS, **fields: Any) -> job_pb2.Configuration:
    return job_pb2.Configuration(resources=resources, **fields)


def test_a_spec_comes_back_as_it_went() -> None:
    groups = [job_pb2.TaskGroup(count=2, resources=GPUS, level="node"), job_pb2.TaskGroup(count=1, resources=CPUS)]
    said = job_pb2.JobSpec(
        command=["true"],
        resources=CPUS,
        job_class=job_pb2.JOB_CLASS_BEST_EFFORT,
        grace_period=Duration(seconds=30),
        device_memory_mib=8_000,
        nodes=job_pb2.NodeRequest(excluded=["n9"]),
        alternatives=[FULL, configuration(job_pb2.Resources(), task_groups=groups)],
    )
    once = spec_in(said, 0)
    assert isinstance(once, JobSpec)
    assert spec_in(spec_out(once), 0) == once
    assert spec_out(once).alternatives[0] == FULL
    assert [group.level for group in spec_out(once).alternatives[1].task_groups] == ["node", ""]
    assert once.in_configuration(1).command == ("python", "gpu.py")
    assert once.in_configuration(2).demand.devices == 2


@pytest.mark.parametrize(
    ("alternatives", "field", "said"),
    [
        ([configuration()] * 16, "spec.alternatives", "15"),
        ([configuration(), configuration(estimate=Duration(seconds=0))], "spec.alternatives[1].estimate", "1s"),
        ([configuration(estimate=Duration(seconds=-5))], "spec.alternatives[0].estimate", "1s"),
        ([configuration(GPUS), configuration(GPUS, estimate=Duration(seconds=9))], "spec.alternatives[1]", "1 and 2 are equal"),
        ([configuration(GPUS, cells=job_pb2.CellRequest(level="node"))], "spec.virtual_cluster", "configuration 1"),
        ([configuration(GPUS, environment={"EBB_NODE": "x"})], "spec.alternatives[0].environment", "EBB_"),
        ([configuration(task_groups=[TASKS] * 2)], "spec.alternatives[0].task_groups", "4096"),
        ([configuration(nodes=job_pb2.NodeRequest(labels={"a b": "c"}))], "spec.alternatives[0].nodes.labels", "letters"),
    ],
)  # fmt: skip
def test_what_nobody_can_mean_is_refused_with_its_field(
    server: Server, alternatives: list[job_pb2.Configuration], field: str, said: str
) -> None:
    refused = failure(lambda: server.submit(alternatives=alternatives))
    assert (refused.code, refused.info.metadata["field"]) == (grpc.StatusCode.INVALID_ARGUMENT, field)
    assert said in refused.text


@pytest.mark.parametrize(
    ("one", "code", "reason", "said"),
    [
        (configuration(GPUS, cells=job_pb2.CellRequest(model="TPU")), "NOT_FOUND", "NO_SUCH_MODEL", "there are: P100"),
        (configuration(nodes=job_pb2.NodeRequest(names=["n7"])), "NOT_FOUND", "NO_SUCH_NODE", "'n7'"),
        (configuration(GPUS, device_memory_mib=99_000), "FAILED_PRECONDITION", "NO_SUITABLE_NODE", "99000 MiB"),
        (configuration(nodes=job_pb2.NodeRequest(labels={"zone": "b"})), "FAILED_PRECONDITION", "NO_SUITABLE_NODE", "zone=b"),
        (configuration(GPUS, cells=job_pb2.CellRequest(pool="x")), "FAILED_PRECONDITION", "NO_POOLS", "no pool 'x'"),
        (configuration(job_pb2.Resources(devices=64)), "FAILED_PRECONDITION", "NO_NODE_LARGE_ENOUGH", "64 devices"),
    ],
)  # fmt: skip
def test_a_configuration_that_no_node_can_satisfy_is_refused(
    server: Server, agent: Agent, one: job_pb2.Configuration, code: str, reason: str, said: str
) -> None:
    refused = failure(lambda: server.submit(alternatives=[one]))
    assert (refused.code.name, refused.reason) == (code, reason)
    assert said in refused.text
    assert "configuration 1: " in refused.text


def test_the_agent_is_told_the_configuration_that_was_chosen(server: Server, agent: Agent) -> None:
    """The first asks for more devices than are left, so the job starts in the second, whose command and variables it has."""
    server.submit(devices=1)
    agent.orders()
    on_cpus = configuration(command=["cpu"], environment={"LR": "0.1"})
    job = server.submit(devices=2, environment={"LR": "0.5", "A": "1"}, alternatives=[on_cpus])
    order = agent.orders()[-1]
    assert server.get(job.id).configuration == 1
    assert order.running.configuration == 1
    assert list(order.running.spec.command) == ["cpu"]
    assert dict(order.running.spec.environment) == {"LR": "0.1", "A": "1"}
    assert list(order.running.spec.alternatives) == []
    assert (order.running.spec.resources, list(order.running.devices)) == (CPUS, [])


def test_the_labels_of_a_node_are_shown(server: Server, agent: Agent) -> None:
    node = server.cluster.GetNode(cluster_pb2.GetNodeRequest(node="n1"), timeout=LIMIT).node
    assert dict(node.labels) == {"zone": "a"}
