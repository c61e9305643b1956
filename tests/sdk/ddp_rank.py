"""A rank of data-parallel training by PyTorch, on CPUs: a tiny model, evaluations, saves that take a while, and an end.

It tells in EVIDENCE, a line of JSON each time, which moment of its life it has reached.
"""

import json
import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from client_sdk.training import Checkpointer

STEPS, SAVE, EVALUATE = 40, 9, 10


class Slow:
    """Takes a moment to be pickled, as large tensors do."""

    def __reduce__(self) -> Any:
        tell("saving")
        time.sleep(0.01)
        return Slow, ()


def tell(event: str, **facts: object) -> None:
    line = json.dumps({"run": int(os.environ.get("EBB_RUN") or 1), "rank": int(os.environ["RANK"]), "event": event, **facts})
    file = os.open(os.environ["EVIDENCE"], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def mean(number: torch.Tensor) -> float:
    """The mean over all ranks."""
    total = number.detach().clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1000 * step + int(os.environ["RANK"]))
    return torch.randn(8, 4, generator=random), torch.randn(8, 1, generator=random)


def train(checkpoint: Checkpointer, steps: int, pause: float) -> list[float]:
    """Returns the loss of each step, over all runs."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses: list[float] = []
    if (saved := checkpoint.load()) is not None:
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        losses = saved["losses"]
    tell("loaded", step=len(losses))
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    # Else the first step after each start has other buckets than those after it, and adds up gradients in another order.
    model = DistributedDataParallel(net, find_unused_parameters=True)
    tell("group")
    while len(losses) < steps:
        inputs, targets = batch(len(losses))
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        torch.autograd.backward(loss)  # the collective that breaks if a rank is gone
        optimizer.step()
        losses.append(mean(loss))
        time.sleep(pause * (1 + int(os.environ["RANK"]) % 2))
        tell("step", step=len(losses))
        if len(losses) % EVALUATE == 0:
            tell("evaluating")
            with torch.no_grad():
                mean(torch.nn.functional.mse_loss(model(batch(-1)[0]), batch(-1)[1]))
            time.sleep(3 * pause)
        checkpoint.at_boundary(
            lambda: {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses, "slow": Slow()}
        )
    tell("end")
    dist.barrier()
    time.sleep(pause)
    return losses


def main() -> None:
    torch.set_num_threads(1)
    options = json.loads(os.environ.get("OPTIONS", "{}"))
    steps, pause = options.pop("steps", STEPS), options.pop("pause", 0.002)
    tell("started")
    with Checkpointer(every_steps=SAVE, **options) as checkpoint:
        tell("entered")
        losses = train(checkpoint, steps, pause)
    tell("done", losses=losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
