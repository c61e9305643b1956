"""Every grpcurl command of the documentation does what it says, on a cluster of processes; and every call is documented."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ebb.v1 import cluster_pb2, scheduler_pb2, snapshots_pb2, virtual_clusters_pb2

from client_sdk import Client, JobState, NodeState, NotFound
from client_sdk._requests.files import GetResult
from examples.cluster import Cluster
from tests import grpcurl
from tests.harness import quick_cluster

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LIMIT = 60.0


def documented() -> list[str]:
    """The commands of the code blocks, each on one line, in order; those that need more than this machine (TLS) left out."""
    found = []
    for path in DOCS:
        for block in re.findall(r"```sh\n(.*?)```", path.read_text(), flags=re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [" ".join(line.split()) for line in lines if line.startswith("grpcurl -plaintext")]
    return found


def test_every_call_of_a_user_is_documented() -> None:
    text = "\n".join(documented())
    for file in (module.DESCRIPTOR for module in (scheduler_pb2, cluster_pb2, snapshots_pb2, virtual_clusters_pb2)):
        for service in file.services_by_name.values():
            missing = [method.name for method in service.methods if f"{service.full_name}/{method.name}" not in text]
            assert missing == [], f"docs/api.md shows no grpcurl command for {service.name}: {missing}"


def of_tenants(command: str) -> bool:
    """Whether it is for a site with virtual clusters."""
    return "VirtualClusters/" in command or '"virtual_cluster"' in command


@pytest.fixture(params=[False, True], ids=["plain", "tenants"])
def tenants(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def cluster(folder: Path, tenants: bool) -> Iterator[Cluster]:
    (folder / "scheduler.yaml").write_text(f"virtual_clusters: {str(tenants).lower()}\n")
    flags = ("--config", str(folder / "scheduler.yaml"))
    with quick_cluster(folder, ("--silent-after", "1", "--heartbeat", "0.3", *flags)) as cluster:
        cluster.start_scheduler()
        cluster.start_agent("node-1", "cpu-20c")
        cluster.start_agent("node-2", "cpu-20c")
        yield cluster


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_documented_commands_do_what_they_say(cluster: Cluster, tenants: bool) -> None:
    """In the order of the page, which tells two stories: job 1 is submitted, suspended, resumed, ..., cancelled; on another
    site virtual clusters are created, used, changed and deleted."""
    commands = [command for command in documented() if of_tenants(command) == tenants]
    assert len(commands) > (8 if tenants else 20)
    with Client(cluster.address) as client:
        until(lambda: [node.state for node in client.nodes()] == [NodeState.UP] * 2)
        for command in commands:
            _prepare(command, cluster, client)
            said = grpcurl.run(command, cluster.address)
            assert said.status == 0, f"{command}\n{said.output}"
            assert said.output.strip(), command
            if "/" in command.split()[-1] and "Watch" not in command and "Logs" not in command:
                json.loads(said.output)


def _prepare(command: str, cluster: Cluster, client: Client) -> None:
    """Waits until the job or the node is in the state that the page has come to."""
    call = command.rpartition("/")[2]
    if call in ("Suspend", "Requeue", "Migrate", "Logs"):
        until(lambda: client.get(1).state is JobState.RUNNING)
    elif call == "Resume":
        until(lambda: client.get(1).state is JobState.SUSPENDED)
    elif call == "GetResult":
        until(lambda: _has_result(client, 3))
    elif call == "Fence":
        cluster.kill("node-2")
        until(lambda: {node.name: node.state for node in client.nodes()}["node-2"] is NodeState.SILENT)


def _has_result(client: Client, job_id: int) -> bool:
    try:
        return client._ask(GetResult(job_id, 0)).data == b"42\n"
    except NotFound:
        return False
