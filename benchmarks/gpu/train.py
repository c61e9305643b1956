"""A training program of which no line knows Ebb: `train.py MODEL DEVICE [BLOCKS]`. Writes a line of JSON for each 20 steps.

At a line on its standard input it ends, and writes a checksum of its weights.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

REPORT = 20


def main(kind: str, device: str, blocks: int) -> None:
    from models import GPT, ResNet50  # type: ignore[import-not-found]

    torch.manual_seed(1)
    tiny = device == "cpu"
    if kind == "resnet50":
        model = ResNet50().to(device)
        batch: Any = torch.randn(2 if tiny else 64, 3, 64 if tiny else 224, 64 if tiny else 224, device=device)
        target = torch.randint(1000, (batch.shape[0],), device=device)
    else:
        model = GPT(blocks, *((64, 4, 500) if tiny else ())).to(device)
        batch = torch.randint(500, (1, 32 if tiny else 512), device=device)
        target = batch.roll(-1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    began, steps = time.monotonic(), 0
    while True:
        with torch.autocast(device, torch.bfloat16, enabled=not tiny):
            answer = model(batch)
            loss = torch.nn.functional.cross_entropy(answer.flatten(0, -2), target.flatten())
        del answer
        optimizer.zero_grad()  # after the forward pass, so that gradients are there when the program parks
        loss.backward()
        optimizer.step()
        steps += 1
        if steps % (2 if tiny else REPORT):
            continue
        value = loss.item()  # waits for the device
        print(json.dumps({"steps": steps, "seconds": time.monotonic() - began, "loss": value}), flush=True)
        began = time.monotonic()
        if select.select([sys.stdin], [], [], 0)[0]:
            break
    weights = sum(parameter.double().sum().item() for parameter in model.parameters())
    print(
        json.dumps({"weights": weights, "parameters": sum(parameter.numel() for parameter in model.parameters())}), flush=True
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
