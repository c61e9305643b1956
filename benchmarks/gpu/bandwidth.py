"""The bandwidth of copies between the device and page-locked host memory, as the arena has it. Writes a line of JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "ebb_inject"))

ROUNDS = 5


def main(device: str, size: int) -> None:
    from ebb_hook.arena import Arena  # type: ignore[import-not-found]

    arena = Arena(torch, pinned=device == "cuda")
    began = time.monotonic()
    (place,) = arena.places([size])
    allocated = time.monotonic() - began
    there = torch.ones(size, dtype=torch.uint8, device=device)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None

    def seconds(to: torch.Tensor, source: torch.Tensor) -> float:
        best = float("inf")
        for _ in range(ROUNDS):
            synchronize()
            start = time.perf_counter()
            to.copy_(source, non_blocking=True)
            synchronize()
            best = min(best, time.perf_counter() - start)
        return best

    out, back = size / seconds(place.bytes, there), size / seconds(there, place.bytes)
    print(json.dumps({"out": out, "back": back, "allocate": allocated / size, "pinned": arena.pinned}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
