"""A task of an elastic job: data-parallel training by PyTorch on CPUs, with `client_sdk.training.job`.

It tells in EVIDENCE, a line of JSON each time, what it has come to: of each step the samples of this task, and the loss of all.
"""

import json
import os
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from client_sdk.training import job

EPOCHS, SAMPLES, BATCH = 3, 44, 2


def tell(event: str, **facts: object) -> None:
    line = json.dumps({"run": int(os.environ["EBB_RUN"]), "rank": int(os.environ["RANK"]), "event": event, **facts})
    file = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def net() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def data() -> TensorDataset:
    inputs = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(2))
    return TensorDataset(torch.arange(SAMPLES), inputs, inputs.sin().sum(1, keepdim=True))


def main() -> None:
    torch.set_num_threads(1)
    options: dict[str, Any] = json.loads(os.environ.get("OPTIONS", "{}"))
    pause = options.pop("pause", 0.0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    model = DistributedDataParallel(
        net(), find_unused_parameters=True
    )  # so that the buckets of the first step are those of all
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(data(), batch_size=BATCH, shuffle=True)
    job.checkpointable(model=model, optimizer=optimizer, every_steps=4, seed=7, **options)
    tell("loaded", step=job.step, world=job.world_size, accumulate=job.accumulate)
    samples: list[int] = []
    total = torch.zeros(1)
    for _ in job.epochs(EPOCHS):
        for numbers, inputs, wanted in job.steps(loader):
            samples += numbers.tolist()
            with nullcontext() if job.ends_step else model.no_sync():
                loss = torch.nn.functional.mse_loss(model(inputs), wanted) * job.loss_scale
                torch.autograd.backward(loss)
            total += loss.detach() / job.world_size
            if job.ends_step:
                optimizer.step()
                optimizer.zero_grad()
                dist.all_reduce(total)
                tell("step", step=job.step + 1, samples=samples, loss=total.item())
                samples, total = [], torch.zeros(1)
                time.sleep(pause)
    tell("end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
