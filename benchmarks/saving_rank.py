"""A rank of data-parallel training by PyTorch and gloo, which saves the state that all ranks have in common after each step.

Rank 0 writes in the file TIMES how many seconds each step took, with its save.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from client_sdk.training import job

STEPS, WIDTH = 3, 64


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    model = nn.Linear(int(os.environ["MEGABYTES"]) * 1_000_000 // 4 // WIDTH, WIDTH)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    job.checkpointable(
        model=model, optimizer=optimizer, every_steps=1, background=False, elastic=True, micro_batches=4, keep=STEPS
    )
    took: list[float] = []
    began = time.perf_counter()
    for _ in job.epochs(1):
        for _ in job.steps(range(4 * STEPS)):
            if job.ends_step:
                wrapped(torch.ones(1, model.in_features)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                took.append(time.perf_counter() - began)
                dist.barrier()
                began = time.perf_counter()
    if dist.get_rank() == 0:
        Path(os.environ["TIMES"]).write_text(" ".join(map(str, took)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
