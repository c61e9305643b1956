"""The random generators of a process: Python's, and those of NumPy and PyTorch if the program has imported them."""

import random
import sys
from collections.abc import Mapping
from typing import Any


def capture() -> dict[str, Any]:
    """The states of the global generators: Python's, NumPy's, PyTorch's on the CPU and on each device that is in use.

    They are plain values and tensors, which `torch.load` reads with `weights_only=True`.
    """
    states: dict[str, Any] = {"python": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = [str(kind), keys.tolist(), *rest]
    if (torch := sys.modules.get("torch")) is not None:
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
        if torch.backends.mps.is_available():
            states["mps"] = torch.mps.get_rng_state()
    return states


def restore(states: Mapping[str, Any]) -> None:
    """Sets the generators to what `capture` returned. A device that this process does not have is left out."""
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        kind, keys, *rest = states["numpy"]
        numpy.random.set_state((kind, numpy.array(keys, numpy.uint32), *rest))
    if "torch" in states:
        import torch

        torch.set_rng_state(states["torch"])
        for device, state in enumerate(states.get("cuda", ())[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, device)
        if "mps" in states and torch.backends.mps.is_available():
            torch.mps.set_rng_state(states["mps"])


def seed(number: int) -> None:
    """Seeds the global generators of a worker process with a number of 64 bits."""
    random.seed(number)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed([number & 0xFFFFFFFF, number >> 32])
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(number)
