"""A training that registers what it saves, and writes down when its steps end: `migrating.py MODEL DEVICE [BLOCKS]`."""

import atexit
import os
import sys
import time
from pathlib import Path

BEGAN = time.monotonic()

import torch  # noqa: E402  # what comes before is the time at which the script began
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from client_sdk.training import job  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))


def tell(what: str, at: float | None = None) -> None:
    with Path(os.environ["TIMES"]).open("a") as file:
        file.write(f"\n{os.environ['EBB_RUN']} {what} {time.monotonic() if at is None else at}\n")


def main(kind: str, device: str, blocks: int) -> None:
    from train import made  # type: ignore[import-not-found]

    tell("began", BEGAN)
    with torch.device(device):
        model, loss_of = made(kind, device == "cpu", blocks, 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    loader = DataLoader(TensorDataset(torch.arange(512)), batch_size=8)
    tell("built")
    job.checkpointable(model=model, optimizer=optimizer)
    tell("loaded")
    atexit.register(tell, "exits")
    for _ in job.epochs(100_000):
        for _numbers in job.steps(loader):
            with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
                loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()  # waits for the device
            tell("step")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
