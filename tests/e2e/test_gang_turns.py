"""Gangs on two nodes, whose agents do not talk to each other, are parked and take turns, from end to end."""

import os
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

import ebb_inject
from client_sdk import Job, JobState, TaskGroup
from tests.harness import LIMIT, ROOT, Site, leftovers
from tests.store.waiting import wait_for

SCRIPT = ROOT / "tests" / "e2e" / "turns_rank.py"
PERIOD = 10.0
LONG = 4 * LIMIT
pytestmark = pytest.mark.timeout(900)
DEVICES = 2
"""Of each node."""
NODES = ("n1", "n2")


@pytest.fixture
def site(folder: Path, training_packages: None) -> Iterator[Site]:
    settings = folder / "scheduler.yaml"
    settings.write_text(f"policy: gandiva\npolicy_settings: {{period: {PERIOD:g}, packing: 0}}\n")
    debug = ("pcie-2", "--log-level", "DEBUG")
    with Site(folder / "site", ["--config", str(settings)], nodes=NODES, devices=debug) as made:
        yield made
        made.check_all_ended()
    assert not leftovers(folder)


class Gang:
    """A job with a task on each node, on all of their devices."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        self.evidence, self.end = site.file(f"{name}.steps"), site.file(f"{name}.end")
        self.evidence.touch()
        environment = {"EVIDENCE": str(self.evidence), "END": str(self.end), "OMP_NUM_THREADS": "1"}
        self.job: Job = site.client.submit(
            [sys.executable, str(SCRIPT)], name=name, env=environment, tasks=[TaskGroup(count=2, devices=DEVICES)], grace=30
        )

    def steps(self) -> list[tuple[int, int, float, str]]:
        """Rank, step, time and loss of every step."""
        lines = (line.split() for line in self.evidence.read_text().split("\n")[:-1])
        return [(int(rank), int(step), float(at), loss) for _, rank, step, at, loss in lines]

    def reached(self) -> int:
        """The last step that both ranks have done."""
        done = {0: 0, 1: 0} | {rank: step for rank, step, _, _ in self.steps()}
        return min(done.values())

    def outputs(self) -> list[str]:
        return [path.read_text() for path in self.site.folder.glob(f"n*/runs/*/{self.job.id}.1*/output.log")]

    def goes_on(self, steps: int = 20) -> None:
        before = self.reached()

        def has_gone_on() -> bool:
            job = self.site.client.get(self.job.id)
            assert not job.ended, (job.reason_detail, self.site.client.story(job.id), self.outputs())
            return self.reached() >= before + steps

        wait_for(has_gone_on, LONG)

    def ends(self) -> dict[int, list[str]]:
        """The losses of each rank."""
        self.end.write_text("1")
        self.site.succeeded(self.job, limit=LONG)
        return losses(self.steps())


def losses(steps: list[tuple[int, int, float, str]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for rank, step, _, loss in steps:
        assert step == len(found[rank]) + 1, "each step is done once"
        found[rank].append(loss)
    return found


def unbroken(folder: Path, steps: int) -> dict[int, list[str]]:
    """Those of a gang that nobody parks."""
    evidence, end = folder / "unbroken.steps", folder / "unbroken.end"
    end.write_text(str(steps))
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        port = str(kept.getsockname()[1])
    told = {"EVIDENCE": str(evidence), "END": str(end), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = os.environ | told | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ebb_inject.FOLDER}
    ranks = [subprocess.Popen([sys.executable, str(SCRIPT)], env=environment | {"RANK": str(rank)}) for rank in range(2)]
    assert [rank.wait(LONG) for rank in ranks] == [0, 0]
    gang = [line.split() for line in evidence.read_text().splitlines()]
    return losses([(int(rank), int(step), float(at), loss) for _, rank, step, at, loss in gang])


def parks(site: Site, gang: Gang, how: str) -> int:
    """How often an agent has parked a task of the gang so, as the agents have logged it."""
    text = "".join(site.log(node) for node in NODES)
    return sum(f"run {gang.job.id}.1" in line and f"parked ({how})" in line for line in text.splitlines())


def turns_of(*gangs: Gang) -> list[int]:
    """Whose turn it was, one after the other, by their steps."""
    events = sorted((at, number) for number, gang in enumerate(gangs) for _, _, at, _ in gang.steps())
    return [number for number, _ in groupby(number for _, number in events)]


def test_two_gangs_take_turns_on_two_nodes(site: Site) -> None:
    """Also if an agent is killed meanwhile. Their losses are those of gangs that have the nodes to themselves."""
    one = Gang(site, "one")
    one.goes_on()
    other = Gang(site, "other")
    other.goes_on()
    one.goes_on()
    wait_for(lambda: min(parks(site, gang, "cooperative") for gang in (one, other)) >= 4, LONG)

    nodes = site.client.nodes()
    site.cluster.kill("n2")
    site.cluster.restart_agent("n2")
    site.wait_connected(since=[node for node in nodes if node.name == "n2"])
    before = [parks(site, gang, "cooperative") for gang in (one, other)]
    for gang in (one, other, one):
        gang.goes_on()
    wait_for(lambda: all(parks(site, g, "cooperative") >= b + 2 for g, b in zip((one, other), before, strict=True)), LONG)

    turns = turns_of(one, other)
    found = one.ends()
    other_found = other.ends()
    assert 4 <= len(turns) <= 0.2 * len(one.steps()), "a turn has many steps"
    assert len(found[0]) == len(found[1])
    steps = max(len(found[0]), len(other_found[0]))
    alone = unbroken(site.folder, steps)
    for gang in (found, other_found):
        assert all(gang[rank] == alone[rank][: len(gang[rank])] for rank in (0, 1))


def parked(site: Site, gang: Gang) -> Job:
    site.client.suspend(gang.job.id, park=True, park_only=True)
    return site.until(gang.job, JobState.SUSPENDED, limit=LONG)


def test_a_gang_on_two_nodes_is_parked_and_resumed(site: Site) -> None:
    gang = Gang(site, "gang")
    gang.goes_on()
    for _ in range(2):
        assert parked(site, gang).parked
        at = gang.reached()
        assert not [step for _, step, _, _ in gang.steps() if step > at], "both have parked after one step"
        site.succeeded(site.short(devices=DEVICES), site.short(devices=DEVICES))
        site.client.resume(gang.job.id)
        gang.goes_on()
    assert parks(site, gang, "cooperative") == 4
    assert parks(site, gang, "stopped") == 0
    found = gang.ends()
    assert site.client.get(gang.job.id).run == 1
    assert found == unbroken(site.folder, len(found[0]))


def test_an_agent_that_is_killed_in_the_middle_of_a_park(site: Site) -> None:
    """The gang is parked, or goes on. Nothing is parked for ever on one node alone."""
    gang = Gang(site, "gang")
    gang.goes_on()
    for victim in NODES:
        nodes = site.client.nodes()
        site.client.suspend(gang.job.id, park=True, park_only=True)
        site.cluster.kill(victim)
        site.cluster.restart_agent(victim)
        site.wait_connected(since=[node for node in nodes if node.name == victim])
        settled = wait_for(lambda: job if (job := site.client.get(gang.job.id)).operation is None or job.parked else None, LONG)
        if settled.parked:
            site.client.resume(gang.job.id)
        gang.goes_on()
    assert parked(site, gang).parked
    site.client.resume(gang.job.id)
    gang.goes_on()
    assert gang.ends()
