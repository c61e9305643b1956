"""A task of a training job whose nodes and scheduler fail: PyTorch on CPUs, and as few as one task.

It appends a line of JSON to EVIDENCE for each step, with the samples of this task and the loss over all tasks. As long as it
lives it holds the lock of its job and rank in LOCKS: no other process of that rank may be alive then. Until the file END is
there, it pauses after each step. With ELASTIC it trains with any number of tasks.
"""

import fcntl
import json
import os
import sys
import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from client_sdk.training import job

QUICK, PAUSE, LONG_PAUSE = 300, 0.03, 0.5
"""Steps with a pause, and the pauses of these and of later steps, with which no job ends before it may."""
RANK, RUN, JOB = (int(os.environ.get(name) or 0) for name in ("RANK", "EBB_RUN", "EBB_JOB_ID"))
ELASTIC = bool(os.environ.get("ELASTIC"))
SAMPLES, BATCH = 96, 2
EPOCHS = 40 if ELASTIC else 20
"""A step of the elastic job takes two batches."""


def tell(event: str, **facts: object) -> None:
    """One line of evidence, in one write."""
    ids = {"job": JOB, "run": RUN, "rank": RANK, "node": os.environ.get("EBB_NODE"), "pid": os.getpid()}
    file = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{json.dumps({**ids, 'event': event, **facts})}\n".encode())
    os.close(file)


def take_lock() -> int:
    lock = os.open(Path(os.environ["LOCKS"]) / f"{JOB}-{RANK}", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        tell("beside")
        sys.exit(99)
    return lock


def net() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def data() -> TensorDataset:
    inputs = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(2))
    return TensorDataset(torch.arange(SAMPLES), inputs, inputs.sin().sum(1, keepdim=True))


def main() -> None:
    lock = take_lock()
    end = Path(os.environ["END"])
    torch.set_num_threads(1)
    model: torch.nn.Module = net()
    if ELASTIC:
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
        # Else the first step after each start has other buckets than those after it, and adds up gradients in another order.
        model = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    torch.manual_seed(3)  # of the order of the data
    loader = DataLoader(data(), batch_size=BATCH, shuffle=True)
    job.checkpointable(model=model, optimizer=optimizer, every_steps=int(os.environ.get("EVERY", "20")), seed=7)
    tell("start", step=job.step, world=job.world_size)
    samples: list[int] = []
    total = torch.zeros(1)
    for _ in job.epochs(EPOCHS):
        for numbers, inputs, wanted in job.steps(loader):
            samples += numbers.tolist()
            with model.no_sync() if ELASTIC and not job.ends_step else nullcontext():
                loss = torch.nn.functional.mse_loss(model(inputs), wanted) * job.loss_scale
                torch.autograd.backward(loss)
            total += loss.detach() / job.world_size
            if job.ends_step:
                if ELASTIC:
                    dist.all_reduce(total)
                optimizer.step()
                optimizer.zero_grad()
                tell("step", step=job.step + 1, world=job.world_size, samples=samples, loss=total.item())
                samples, total = [], torch.zeros(1)
                time.sleep(0 if end.exists() else PAUSE if job.step < QUICK else LONG_PAUSE)
    tell("end", step=job.step)
    if ELASTIC:
        dist.destroy_process_group()
    os.close(lock)


if __name__ == "__main__":
    main()
