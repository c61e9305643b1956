"""A training program of which no line knows Ebb: `train.py MODEL DEVICE [BLOCKS]`. Writes a line of JSON for each 20 steps.

At a line on its standard input it ends, and writes a checksum of its weights.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parent))

REPORT = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("resnet50", "gpt", "vae", "superres"))
    parser.add_argument("device", choices=("cuda", "cpu"))
    parser.add_argument("blocks", type=int, nargs="?", default=1, help="of the GPT")
    parser.add_argument("--batch", type=int, default=0, help="items of a mini-batch")
    parser.add_argument("--report", type=int, default=0, help=f"steps of a line. [default: {REPORT}; 2 on a CPU]")
    parser.add_argument("--deterministic", action="store_true", help="the same bits in each run, where PyTorch can")
    given = parser.parse_args()
    if given.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(1)
    tiny = given.device == "cpu"
    with torch.device(given.device):
        model, loss_of = made(given.model, tiny, given.blocks, given.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    report = given.report or (2 if tiny else REPORT)
    began, steps = time.monotonic(), 0
    while True:
        with torch.autocast(given.device, torch.bfloat16, enabled=not tiny):
            loss = loss_of()
        optimizer.zero_grad()  # after the forward pass, so that gradients are there when the program parks
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % report:
            continue
        value = loss.item()  # waits for the device
        at = time.monotonic()
        print(json.dumps({"steps": steps, "seconds": at - began, "at": at, "loss": value}), flush=True)
        began = time.monotonic()
        if select.select([sys.stdin], [], [], 0)[0] and sys.stdin.readline():
            break
    weights = sum(parameter.double().sum().item() for parameter in model.parameters())
    print(
        json.dumps({"weights": weights, "parameters": sum(parameter.numel() for parameter in model.parameters())}), flush=True
    )


def made(kind: str, tiny: bool, blocks: int, batch: int) -> tuple[nn.Module, Callable[[], Any]]:
    """A model on the default device, and what gives the loss of a mini-batch."""
    from models import GPT, VAE, ResNet50, SuperResolution  # type: ignore[import-not-found]

    cross_entropy = nn.functional.cross_entropy
    if kind == "resnet50":
        side = 64 if tiny else 224
        images = torch.randn(batch or (2 if tiny else 64), 3, side, side)
        classes = torch.randint(1000, (len(images),))
        model = ResNet50()
        return model, lambda: cross_entropy(model(images), classes)
    if kind == "gpt":
        words = torch.randint(500, (batch or 1, 32 if tiny else 512))
        following = words.roll(-1)
        model = GPT(blocks, *((64, 4, 500) if tiny else ()))
        return model, lambda: cross_entropy(model(words).flatten(0, -2), following.flatten())
    if kind == "vae":
        pixels = torch.rand(batch or 128, 784)
        model = VAE()
        return model, lambda: model(pixels)
    images = torch.rand(batch or (1 if tiny else 64), 1, 85, 85)
    wanted = torch.rand(len(images), 1, 255, 255)
    model = SuperResolution()
    return model, lambda: nn.functional.mse_loss(model(images).float(), wanted)


if __name__ == "__main__":
    main()
