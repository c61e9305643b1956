"""Gangs over two agents are stopped at random steps, lose a rank or a node, and go on from one step, from end to end."""

import json
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from client_sdk import NodeState, TaskGroup
from tests.harness import LIMIT, ROOT, WHOLE_NODE, Site
from tests.sdk.forked import Server
from tests.sdk.gang_stops import TorchGang
from tests.store.waiting import wait_for

RANK = ROOT / "tests" / "sdk" / "rank.py"
STEPS, EVERY = 300, 7


def weight_after(steps: int) -> float:
    """What `rank.py` computes, in one process."""
    weight = 1.0
    for step in range(steps):
        weight += weight / (step + 50.0) + 2 * weight / (step + 50.0)
    return weight


class Training:
    """A gang over two nodes, on all of their devices, and what its ranks say."""

    def __init__(
        self, site: Site, script: Path = RANK, *, tasks: int = 2, grace: float = 30, retries: int = 0, **environment: str
    ) -> None:
        self.site = site
        self._tasks = tasks
        self._evidence = site.file(f"stops-{len(list(site.folder.glob('stops-*')))}")
        self._evidence.touch()
        self.job = site.client.submit(
            [sys.executable, str(script)],
            env={"EVIDENCE": str(self._evidence), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
            tasks=[TaskGroup(count=tasks, devices=2 * WHOLE_NODE // tasks)],
            grace=grace,
            retries=retries,
        )

    def told(self, what: str) -> dict[int, dict[int, dict[str, Any]]]:
        """The last line of each run and rank in which it stands."""
        told: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
        for line in map(json.loads, self._evidence.read_text().split("\n")[:-1]):  # the last one may still be written
            if what in (line.get("event"), *line):
                told[line["run"]][line["rank"]] = line
        return told

    def reached(self, run: int) -> int:
        """The last step that all ranks have done."""
        steps = [line["step"] for line in self.told("step")[run].values()]
        return min(steps) if len(steps) == self._tasks else 0

    def wait_step(self, run: int, step: int) -> None:
        wait_for(lambda: self.reached(run) >= step, LIMIT)

    def began(self, run: int, word: str = "loaded") -> int:
        """The step from which all ranks have gone on, which is one."""
        told = wait_for(lambda: ranks if len(ranks := self.told("loaded")[run]) == self._tasks else None, LIMIT)
        steps = {line[word] for line in told.values()}
        assert len(steps) == 1, f"the ranks go on from {steps}"
        return int(steps.pop())


def test_a_gang_over_two_nodes_loses_no_step_by_stops(site: Site) -> None:
    random, training = Random(1), Training(site, STEPS=str(STEPS), PAUSE="0.004")
    last = 0
    for run in (1, 2, 3):
        training.wait_step(run, last + random.randrange(1, 40))
        site.client.requeue(training.job)
        last = training.began(run + 1)
        assert last == training.reached(run), "both ranks have stopped at the last step that both have done"
    site.succeeded(training.job)
    assert {line["weight"] for line in training.told("weight")[4].values()} == {weight_after(STEPS)}
    assert training.told("weight").keys() == {4}


def test_a_gang_of_which_a_rank_is_killed_is_retried_from_a_common_step(site: Site) -> None:
    training = Training(site, retries=1, STEPS=str(STEPS), PAUSE="0.004")
    training.wait_step(1, 20)
    os.kill(training.told("loaded")[1][1]["pid"], signal.SIGKILL)
    begun = training.began(2)
    assert begun % EVERY == 0
    assert training.reached(1) - EVERY <= begun <= training.reached(1)
    site.succeeded(training.job)
    assert {line["weight"] for line in training.told("weight")[2].values()} == {weight_after(STEPS)}


@pytest.mark.long
def test_a_gang_whose_node_is_lost_goes_on_elsewhere_from_a_common_step(folder: Path) -> None:
    settings = folder / "scheduler.yaml"
    settings.write_text("heartbeat: 1\nsilent_after: 3\n")
    with Site(folder / "site", ("--config", str(settings)), nodes=("n1", "n2", "n3")) as site:
        training = Training(site, retries=1, STEPS=str(STEPS), PAUSE="0.01")  # the other rank fails in its collective
        training.wait_step(1, 30)
        lost = site.client.get(training.job.id).tasks[1].node
        launcher = site.launcher(lost)
        site.cluster.kill(lost, signal.SIGKILL)  # before the others, of which it tells nobody any more
        for pid in (launcher, training.told("loaded")[1][1]["pid"]):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: site.node(lost).state is NodeState.SILENT, LIMIT)
        site.client.fence(lost)
        begun = training.began(2)
        assert begun % EVERY == 0
        assert training.reached(1) - EVERY <= begun <= training.reached(1)
        site.succeeded(training.job)
        assert lost not in {task.node for task in site.client.get(training.job.id).tasks}
        assert {line["weight"] for line in training.told("weight")[2].values()} == {weight_after(STEPS)}


@pytest.mark.usefixtures("training_packages")
@pytest.mark.long
def test_ranks_of_torch_over_two_nodes_lose_no_step_by_stops(site: Site, tmp_path: Path) -> None:
    script = ROOT / "tests" / "sdk" / "ddp_rank.py"
    random = Random(2)
    training = Training(site, script, OPTIONS=json.dumps({"pause": 0.02}))
    last = 0
    for run in (1, 2, 3):
        training.wait_step(run, last + random.randrange(1, 10))
        site.client.requeue(training.job)
        last = training.began(run + 1, "step")
        assert last == training.reached(run)
    site.succeeded(training.job)
    server = Server("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo", "client_sdk.training")
    unbroken = TorchGang(server, tmp_path / "unbroken", 2).whole()
    server.close()
    assert [training.told("done")[4][rank]["losses"] for rank in (0, 1)] == unbroken
