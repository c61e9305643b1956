"""The job that `migrate` moves: PyTorch with 500 MB of parameters.

It writes down when each of its steps ended, and how much processor time the process had used until then.
"""

import atexit
import os
import time
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()

import torch  # noqa: E402  # what comes before is the time at which the script began
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from client_sdk.training import job  # noqa: E402

WIDTH = 64
PAUSE = 0.02
"""Seconds that each step sleeps in addition to its computation."""


def tell(what: str, at: float | None = None) -> None:
    with Path(os.environ["TIMES"]).open("a") as file:
        file.write(f"{os.environ['EBB_RUN']} {what} {time.monotonic() if at is None else at} {time.process_time()}\n")


class Model(nn.Module):
    """Its weights are made without numbers: those of a checkpoint take their place, or random ones in the first run."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        weight = torch.empty(megabytes * 1_000_000 // 4 // WIDTH, WIDTH)
        if os.environ["EBB_RUN"] == "1":
            weight.normal_()
        self.table = nn.Embedding(*weight.shape, _weight=weight, sparse=True)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, indices: torch.Tensor) -> Any:
        return self.out(self.table(indices))


def main() -> None:
    torch.set_num_threads(1)
    tell("began", BEGAN)
    model = Model(int(os.environ["MEGABYTES"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.arange(512)), batch_size=8)
    tell("built")
    job.checkpointable(model=model, optimizer=optimizer)
    tell("loaded")
    atexit.register(tell, "exits")
    for _ in job.epochs(100_000):
        for (indices,) in job.steps(loader):
            loss = model(indices).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(PAUSE)
            tell("step")


if __name__ == "__main__":
    main()
