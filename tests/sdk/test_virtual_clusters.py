"""Virtual clusters for programs and people, against a scheduler."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from client_sdk import CellQuota, Client, DemotedRun, JobReason, PinnedCell, PinState
from client_sdk.cli import ebb
from tests.rpc.server import Agent, Server
from tests.rpc.test_virtual_clusters import POOL, node
from tests.store.fixtures import *  # noqa: F403

Run = Callable[..., str]


@pytest.fixture
def site(database_url: str) -> Iterator[Server]:
    with Server(database_url, virtual_clusters=True) as made:
        yield made


@pytest.fixture
def agent(site: Server) -> Iterator[Agent]:
    with node(site, "n1") as made:
        made.connect()
        yield made


@pytest.fixture
def client(site: Server) -> Iterator[Client]:
    with Client(site.address, timeout=10) as made:
        yield made


@pytest.fixture
def run(site: Server) -> Run:
    def call(*words: str) -> str:
        done = CliRunner().invoke(ebb, ["--address", site.address, *words], prog_name="ebb")
        assert done.exit_code == 0, done.output
        return done.output

    return call


def test_who_waits_for_cells_is_told_who_has_them_and_when_the_first_ends(
    site: Server, agent: Agent, client: Client, run: Run
) -> None:
    client.create_virtual_cluster("vision", quotas=[CellQuota(POOL, "node", 1)])
    first = client.submit(["true"], vc="vision", devices=2)
    limited = client.submit(["true"], vc="vision", devices=2, time_limit="1h")
    began = datetime.now(UTC)
    agent.started(1, first.id)
    agent.started(2, limited.id)
    site.until(limited.id, "RUNNING")
    waits = client.submit(["true"], vc="vision", devices=4)
    (blocker,) = client.explain(waits).blockers
    assert (blocker.reason, blocker.holders) == (JobReason.BEYOND_QUOTA, 2)
    assert blocker.holder_job_ids == (limited.id, first.id)
    assert blocker.first_end is not None
    assert abs(blocker.first_end - began - timedelta(hours=1)) < timedelta(minutes=1)
    said = run("explain", str(waits.id))
    assert "beyond quota: the cells of virtual cluster vision are in use, by 2, 1; 2 ends first, at 20" in said
    assert " at the latest\n" in said


def test_pins_say_how_they_stand(agent: Agent, client: Client, run: Run) -> None:
    pin = PinnedCell("left", POOL, "switch", 2)
    (use,) = client.create_virtual_cluster("vision", pins=[pin]).pin_uses
    assert (use.name, use.state, use.devices, use.held, use.faults) == ("left", PinState.FREE, 2, 0, ())
    client.drain("n1")
    assert run("vc", "show", "vision").splitlines()[-1].split() == [
        *("left", f"{POOL}/switch/2", "faulty", "0", "of", "2", "n1", "(drained)")
    ]
    assert f"left={POOL}/switch/2 (faulty)" in run("vc", "list", "-o", "wide")


def test_runs_that_would_lose_their_guarantee_are_named_before_anything_is_changed(
    site: Server, agent: Agent, client: Client, run: Run
) -> None:
    client.create_virtual_cluster("vision", quotas=[CellQuota(POOL, "node", 1)])
    job = client.submit(["true"], vc="vision", devices=2)
    agent.started(1, job.id)
    site.until(job.id, "RUNNING")
    (would_be,) = client.update_virtual_cluster("vision", quotas=[], validate_only=True).demoted
    assert would_be == DemotedRun(job_id=job.id, run=1, virtual_cluster="vision")
    assert client.virtual_cluster("vision").quotas
    refused = CliRunner().invoke(ebb, ["--address", site.address, "vc", "update", "vision", "--no-quotas"], prog_name="ebb")
    assert refused.exit_code == 1
    assert f"run {job.id}.1 of virtual cluster vision would lose its guarantee" in refused.output
    assert "--force" in refused.output
    assert client.virtual_cluster("vision").quotas
    run("vc", "update", "vision", "--no-quotas", "--force")
    assert not client.virtual_cluster("vision").quotas
    assert not client.get(job.id).guaranteed
