"""`job.checkpointable` and `job.steps` in real processes that are really stopped, with PyTorch: no bit differs afterwards."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from client_sdk.training import OBEYED

ROOT = Path(__file__).parents[2]


class Runs:
    """The runs of a job, one after the other."""

    def __init__(self, server: "subprocess.Popen[str]", folder: Path, **options: Any) -> None:
        folder.mkdir(exist_ok=True)
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([str(folder), options]) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        self.output = (folder / "output").read_text()
        assert answer, "the process that forks the runs has ended"
        self.statuses = json.loads(answer)
        self.steps = [json.loads(line) for line in (folder / "steps").read_text().splitlines()]


@pytest.fixture(scope="module")
def new(training_packages: None) -> Iterator[Callable[..., Runs]]:
    """Starts a job in a folder and returns its runs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.sdk.job_runs"]
    server = subprocess.Popen(command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with server:
        yield partial(Runs, server)


New = Callable[..., Runs]


def steps_to_stop_at(seed: int, total: int, n: int) -> list[int]:
    return sorted(random.Random(seed).sample(range(1, total), n))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader", ["shuffled", "generator"])
def test_runs_that_are_stopped_do_what_one_run_does(new: New, tmp_path: Path, loader: str, workers: int) -> None:
    unbroken = new(tmp_path / "unbroken", stops=[], loader=loader, workers=workers)
    assert unbroken.statuses == [0]
    assert [step[0] for step in unbroken.steps] == list(range(1, 37))
    epochs = [[index for step in unbroken.steps[at : at + 12] for index in step[1]] for at in (0, 12, 24)]
    assert all(sorted(epoch) == list(range(48)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    stops = [*steps_to_stop_at(workers, 36, 5), 12, 24]  # at the end of an epoch, too
    stopped = new(tmp_path / "stopped", stops=sorted(set(stops)), loader=loader, workers=workers)
    assert stopped.statuses == [*[OBEYED] * len(set(stops)), 0], stopped.output
    assert stopped.steps == unbroken.steps
    assert (tmp_path / "stopped" / "yield-1").exists()
    assert (tmp_path / "stopped" / f"done-{len(stopped.statuses)}").exists()


OTHER = ["weighted 0", "distributed 2", "single 0", "single 2", "stream 0", "stream 2", "list 0", "stateful 0"]


@pytest.mark.parametrize(("loader", "workers"), [(name, int(n)) for name, n in map(str.split, OTHER)])
def test_other_loaders_go_on_in_the_middle_too(new: New, tmp_path: Path, loader: str, workers: int) -> None:
    unbroken = new(tmp_path / "unbroken", stops=[], loader=loader, workers=workers, epochs=2)
    stops = steps_to_stop_at(4, len(unbroken.steps), 3)
    stopped = new(tmp_path / "stopped", stops=stops, loader=loader, workers=workers, epochs=2)
    assert stopped.statuses == [OBEYED, OBEYED, OBEYED, 0], stopped.output
    assert stopped.steps == unbroken.steps


def test_batches_before_the_stop_are_not_loaded_again(new: New, tmp_path: Path) -> None:
    runs = new(tmp_path, stops=[9], epochs=1)
    assert runs.statuses == [OBEYED, 0]
    assert runs.output.splitlines()[-1] == "loaded 12"  # of 48: 3 of 12 batches


def test_runs_that_are_killed_lose_what_was_not_saved_and_no_more(new: New, tmp_path: Path) -> None:
    unbroken = new(tmp_path / "unbroken", stops=[])
    killed = new(tmp_path / "killed", stops=[-8, -19, -33], background=False)
    assert killed.statuses == [-signal.SIGKILL] * 3 + [0]
    assert {step[0]: step for step in killed.steps} == {step[0]: step for step in unbroken.steps}
    assert [step[0] for step in killed.steps] == [*range(1, 8), *range(6, 19), *range(16, 33), *range(31, 37)]
    left = sorted(path.name for path in (tmp_path / "killed" / "checkpoints").iterdir() if path.is_dir())
    steps = [int(name.split("-")[2]) for name in left]
    assert steps == [20, 30, 35]  # the last two, and every twentieth


def test_others_can_read_the_parts(new: New, tmp_path: Path) -> None:
    new(tmp_path, stops=[7], epochs=1)
    import torch

    folder = min(path for path in (tmp_path / "checkpoints").iterdir() if path.is_dir())
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["about"]["step"] == int(folder.name.split("-")[2])
    files = {name: part["file"] for name, part in manifest["parts"].items()}
    model = torch.load(folder / files["model"], weights_only=True)  # not safetensors, which has no tied weights
    assert torch.equal(model["first.weight"], model["second.weight"])
    optimizer = torch.load(folder / files["optimizer"], weights_only=True)
    assert set(optimizer) == {"state", "param_groups"}
    assert files["scheduler"] == "scheduler.pt"
