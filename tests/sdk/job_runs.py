"""Trains a tiny model with `job.checkpointable`, run after run, and stops runs with real signals in the middle of a step.

`python -m tests.sdk.job_runs` imports torch once and forks a process for each run. It reads jobs from its standard input, each
a line [FOLDER, OPTIONS] (see `Options`), and answers with the exit statuses of the runs. A run appends a line for each step to
FOLDER/steps: the step, the samples of its batch, and the bits of its loss and of its state.
"""

import json
import os
import random
import signal
import sys
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch._dynamo  # which each run would import by its first optimizer
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, WeightedRandomSampler, get_worker_info

from client_sdk.training import job

SAMPLES, BATCH = 48, 4


class Options(NamedTuple):
    stops: list[int]
    """Each run but the last gets SIGTERM while it is in this step; negative: SIGKILL."""
    loader: str = "shuffled"
    workers: int = 0
    epochs: int = 3
    every_steps: int | None = 5
    background: bool = True


class Samples(Dataset[Any]):
    """Augments with every global generator that a program may use."""

    def __init__(self) -> None:
        self.loaded = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        self.loaded += 1
        noise = random.random() + np.random.rand() + torch.rand(1).item()
        return index, torch.tensor([index / SAMPLES, noise])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        samples = Samples()
        for index in range(first, SAMPLES, stride):
            yield samples[index]


class Tied(nn.Module):
    """Two layers with one weight, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.into, self.norm, self.out = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norm(self.second(torch.tanh(self.first(self.into(x)))))
        result: torch.Tensor = self.out(nn.functional.dropout(inner, 0.2, self.training))
        return result


def loader(options: Options, samples: Samples) -> Any:
    common: dict[str, Any] = {"batch_size": BATCH, "num_workers": options.workers}
    match options.loader:
        case "shuffled":
            return DataLoader(samples, shuffle=True, **common)
        case "generator":
            return DataLoader(samples, shuffle=True, generator=torch.Generator().manual_seed(3), **common)
        case "weighted":
            return DataLoader(samples, sampler=WeightedRandomSampler([1.0, 2.0] * (SAMPLES // 2), SAMPLES), **common)
        case "distributed":
            return DataLoader(samples, sampler=DistributedSampler(samples, 2, 1, seed=5), **common)
        case "single":
            return DataLoader(samples, batch_size=None, shuffle=True, num_workers=options.workers)
        case "stream":
            return DataLoader(Stream(), **common)
        case "stateful":
            from torchdata.stateful_dataloader import StatefulDataLoader

            return StatefulDataLoader(samples, shuffle=True, **common)
        case "list":
            return [(index, torch.tensor([[index / SAMPLES, 0.5]] * 2)) for index in range(12)]
        case unknown:
            raise ValueError(unknown)


def train(options: Options, stop: int, log: Path) -> None:
    """One run."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    samples = Samples()
    data = loader(options, samples)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)  # its state is created by its first step
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    scaler = torch.amp.GradScaler("cpu")
    ema = OrderedDict((name, value.detach().clone()) for name, value in model.named_parameters())
    noise = np.random.default_rng(7)
    best: list[float] = [float("inf")]
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler, "ema": ema, "noise": noise}
    job.checkpointable(
        **parts, best=best, loader=data, every_steps=options.every_steps, background=options.background, keep_every=20
    )
    loaded = samples.loaded
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for _ in job.epochs(options.epochs):
        for indices, x in job.steps(data):
            x = x.reshape(-1, 2) if options.loader != "single" else x.reshape(1, 2).repeat(2, 1)
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean() + float(noise.standard_normal()) * 1e-3
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if job.step + 1 == abs(stop):
                os.kill(os.getpid(), signal.SIGTERM if stop > 0 else signal.SIGKILL)
            scaler.step(optimizer)
            scaler.update()
            best[0] = min(best[0], loss.item())
            with torch.no_grad():
                for name, value in model.named_parameters():
                    ema[name].lerp_(value, 0.1)
            digest = sum(value.double().abs().sum().item() for value in ema.values())
            said = [job.step + 1, torch.as_tensor(indices).tolist(), loss.item().hex(), digest.hex(), best[0].hex()]
            os.write(file, f"{json.dumps(said)}\n".encode())
        scheduler.step()
    assert model.second.weight is model.first.weight
    os.write(1, f"loaded {samples.loaded - loaded}\n".encode())


def run_all(folder: Path, options: Options) -> list[int]:
    """Runs the job until it is complete, and returns the exit status of each run."""
    statuses = []
    for run, stop in enumerate([*options.stops, 0], 1):
        if (child := os.fork()) == 0:
            output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ |= {"EBB_RUN": str(run), "EBB_CHECKPOINT_DIR": str(folder / "checkpoints")}
            os.environ["EBB_YIELD_FILE"] = str(folder / f"yield-{run}")
            os.environ["EBB_DONE_FILE"] = str(folder / f"done-{run}")
            try:
                train(options, stop, folder / "steps")
            except SystemExit as left:
                os._exit(int(left.code or 0))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        statuses.append(os.waitstatus_to_exitcode(status))
    return statuses


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        folder, options = json.loads(line)
        os.write(1, f"{json.dumps(run_all(Path(folder), Options(**options)))}\n".encode())


if __name__ == "__main__":
    main()
