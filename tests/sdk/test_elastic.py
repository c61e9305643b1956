"""Elastic jobs: the same steps with any number of tasks."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from client_sdk.training import OBEYED, RESIZED, Job
from client_sdk.training._data.elastic import ElasticPass, Share, share_in
from tests.harness import ROOT
from tests.sdk.forked import Server
from tests.sdk.gang_stops import TorchGang
from tests.sdk.job_tools import New, run_to

SCRIPT = ROOT / "tests" / "sdk" / "elastic_rank.py"
STEPS = 3 * (22 // 4)
"""3 epochs of 22 micro-batches, 4 of them in a step."""


@pytest.fixture(scope="module")
def server(training_packages: None) -> Iterator[Server]:
    server = Server("torch", "torch.distributed", "torch.nn.parallel", "torch.utils.data", "client_sdk.training._job")
    yield server
    server.close()


class Elastic(TorchGang):
    """An elastic job of at most 4 tasks, launched run after run."""

    def __init__(self, server: Server, folder: Path, **options: Any) -> None:
        super().__init__(server, folder, 1, script=SCRIPT, more={"EBB_MAX_TASKS": "4", "EBB_MIN_TASKS": "1"}, **options)

    def resize(self, world: int, step: int) -> None:
        """Stops the run after a step as an agent does, and launches the next one with another number of tasks."""
        self.until(lambda: self.reached() >= step)
        for number in range(self.world):
            self.stop(number, "resized")
        assert self.ended() == [RESIZED] * self.world, self.output()
        self.world = world
        self.launch()

    def steps(self) -> dict[int, tuple[tuple[int, ...], float]]:
        """Of each step: the samples of all tasks together, and the loss. No step is done twice."""
        samples: dict[int, list[int]] = defaultdict(list)
        losses: dict[int, set[float]] = defaultdict(set)
        tasks: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for run in range(1, self.run + 1):
            for rank, lines in self.told("step", run).items():
                for line in lines:
                    samples[line["step"]] += line["samples"]
                    losses[line["step"]].add(line["loss"])
                    tasks[line["step"]].append((run, rank))
        assert all(len({run for run, _ in done}) == 1 and len(done) == len(set(done)) for done in tasks.values())
        assert all(len(found) == 1 for found in losses.values()), "the tasks have the same sum"
        return {step: (tuple(sorted(samples[step])), losses[step].pop()) for step in sorted(samples)}


def test_a_resized_torch_job_takes_the_same_batches_and_has_the_same_losses(server: Server, tmp_path: Path) -> None:
    unbroken = Elastic(server, tmp_path / "unbroken")
    unbroken.launch()
    assert unbroken.ended() == [0], unbroken.output()
    plain = unbroken.steps()
    assert list(plain) == list(range(1, STEPS + 1))

    gang = Elastic(server, tmp_path / "resized", pause=0.02)
    gang.launch()
    begins = [0]
    for world, step in ((2, 3), (4, 6), (1, 9)):
        gang.resize(world, step)
        gang.until(lambda: gang.loaded() is not None)
        begins.append(gang.loaded() or 0)
    assert gang.ended() == [0], gang.output()
    resized = gang.steps()
    assert [samples for samples, _ in resized.values()] == [samples for samples, _ in plain.values()]
    assert begins == sorted(set(begins)), "each run goes on where the one before it has stopped"
    losses = [loss for _, loss in resized.values()]
    assert losses == pytest.approx([loss for _, loss in plain.values()], rel=1e-5)
    first = begins[1]
    assert losses[:first] == [loss for _, loss in plain.values()][:first], "with one task, bit for bit"


def test_torch_tasks_that_are_stopped_and_not_resized_go_on_bit_for_bit(server: Server, tmp_path: Path) -> None:
    plain, gang = Elastic(server, tmp_path / "plain"), Elastic(server, tmp_path / "stopped", pause=0.01)
    for one in (plain, gang):
        one.world = 2
        one.launch()
    gang.until(lambda: gang.reached() >= 5)
    for number in range(2):
        gang.stop(number)
    assert gang.ended() == [OBEYED] * 2, gang.output()
    gang.launch()
    assert (plain.ended(), gang.ended()) == ([0, 0], [0, 0])
    assert gang.steps() == plain.steps()


def test_torch_tasks_that_are_killed_resume_with_another_number_from_the_last_save(server: Server, tmp_path: Path) -> None:
    gang = Elastic(server, tmp_path / "killed", pause=0.1)
    gang.world = 2
    gang.launch()
    gang.until(lambda: gang.reached() >= 10)  # the save at step 8 waits until that at step 4 is written
    gang.kill()
    gang.world = 1
    gang.launch()
    assert gang.ended() == [0], gang.output()
    (loaded,) = gang.told("loaded")[0]
    assert loaded["step"] % 4 == 0
    assert loaded["step"] >= 4
    assert loaded["accumulate"] == 4


# ---- shares, without processes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_tasks_share_every_step_out(world: int) -> None:
    shares = [Share(rank, world, 4) for rank in range(world)]
    assert sum(share.accumulate for share in shares) == 4
    taken = [[batch for batch, _ in ElasticPass(range(10, 23), 0, 1, share)] for share in shares]
    ends = [[last for _, last in ElasticPass(range(10, 23), 0, 1, share)] for share in shares]
    assert sorted(chain.from_iterable(taken)) == list(range(10, 22)), "the last batch makes no step"
    assert [sum(each) for each in ends] == [3] * world, "each task takes part in each step"
    later = [[batch for batch, _ in ElasticPass(range(10, 23), 0, 1, share, consumed=4)] for share in shares]
    assert sorted(chain.from_iterable(later)) == list(range(14, 22))


def test_what_no_share_can_be_made_of_is_refused() -> None:
    with pytest.raises(ValueError, match="a step has 2 micro-batches, and the job 3 tasks"):
        share_in({"RANK": "0", "WORLD_SIZE": "3"}, 2, True, None)
    with pytest.raises(ValueError, match="the loader has 3 batches, and a step needs 4"):
        ElasticPass(range(3), 0, 0, Share(0, 1, 4))
    with pytest.raises(TypeError, match="not a generator"):
        ElasticPass((number for number in range(9)), 0, 0, Share(0, 1, 4))


@pytest.mark.usefixtures("training_packages")
def test_a_sampler_that_shards_is_refused_by_torch_jobs() -> None:
    import torch

    sampler: Any = torch.utils.data.DistributedSampler(range(8), num_replicas=2, rank=0)
    loader: Any = torch.utils.data.DataLoader(range(8), sampler=sampler)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has a DistributedSampler, which shards the data"):
        ElasticPass(loader, 0, 0, Share(0, 1, 4))


class Optimizer:
    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = [{"lr": 0.1}]

    def state_dict(self) -> dict[str, Any]:
        return {"param_groups": [dict(group) for group in self.param_groups]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.param_groups = [dict(group) for group in state["param_groups"]]


@pytest.mark.parametrize(("rule", "factor"), [("linear", 4.0), ("sqrt", 2.0)])
def test_the_learning_rate_follows_a_step_that_grows(new_job: New, rule: str, factor: float) -> None:
    rates = []
    for batches in (2, 8):
        job, optimizer = new_job(), Optimizer()
        job.checkpointable(elastic=True, keep_batch=False, micro_batches=batches, optimizer=optimizer)
        assert job.scale_lr(optimizer, rule=rule) == (1.0 if batches == 2 else factor)
        rates.append(optimizer.param_groups[0]["lr"])
        if batches == 2:
            run_to(job, 1)
    assert rates == pytest.approx([0.1, 0.1 * factor])


def test_a_rule_that_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match='rule=\'cubic\' is unknown; it is "linear" or "sqrt"'):
        Job({}).scale_lr(rule="cubic")
