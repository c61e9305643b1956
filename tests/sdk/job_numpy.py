"""A training by NumPy alone: `python -m tests.sdk.job_numpy STEPS EVERY`. Prints each step with the bits of its weight.

Its state is slow to save: it says "saving" and waits until the file GO exists, where the environment names one.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.training import job


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


class Slow:
    """Part of the state that takes long to pickle, and nothing to copy."""

    def __deepcopy__(self, _memo: Any) -> "Slow":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if go := os.environ.get("GO"):
            say("saving")
            while not Path(go).exists():
                time.sleep(0.01)
        return Slow, ()


def main() -> None:
    total, every = map(int, sys.argv[1:])
    np.random.seed(int(os.environ.get("SEED", "0")))
    weight = np.zeros(3)
    job.checkpointable(weight=weight, slow=(Slow, lambda _state: None), every_steps=every)
    for _ in job.epochs(1):
        for _ in job.steps(range(total)):
            weight += np.random.standard_normal(3)
            say(f"step {job.step + 1} {weight.sum().hex()}")
            if job.step + 1 == int(os.environ.get("WAIT_AT", "0")):
                sys.stdin.readline()


if __name__ == "__main__":
    main()
