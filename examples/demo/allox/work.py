"""A small NumPy job for `make demo SHOW=allox`: `python work.py matmul --steps 500`, or `--seconds 0.5` to measure it.

It does so many steps, or as many as it can in so many seconds, and writes to a file how long they took, on which CPUs, and how
long its first thread waited for a CPU meanwhile.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

Step = Callable[[], object]


def matmul() -> Step:
    """Multiplies matrices: BLAS, which uses every thread and every vector unit that it gets."""
    left = np.random.default_rng(1).random((768, 768))
    out = np.empty_like(left)
    return lambda: np.matmul(left, left, out=out)


def inverse() -> Step:
    """Inverts a matrix: LAPACK, of which some parts run on one thread."""
    matrix = np.random.default_rng(2).random((512, 512)) + 512 * np.eye(512)
    return lambda: np.linalg.inv(matrix)


def sort() -> Step:
    """Sorts numbers: NumPy, on one thread."""
    numbers = np.random.default_rng(3).random(500_000)
    return lambda: np.sort(numbers)


def loop() -> Step:
    """A loop in Python: one thread, and no vector unit is of use."""

    def step() -> int:
        value = 0
        for number in range(100_000):
            value = (31 * value + number) & 0xFFFF
        return value

    return step


WORK: Mapping[str, Callable[[], Step]] = {made.__name__: made for made in (matmul, inverse, sort, loop)}


def run(step: Step, steps: int | None, seconds: float) -> tuple[int, float]:
    """How many steps were done, at least one, and in how many seconds."""
    began, done = time.perf_counter(), 0
    while True:
        step()
        done += 1
        took = time.perf_counter() - began
        if done >= steps if steps is not None else took >= seconds:
            return done, took


def waited() -> float:
    """For how many seconds this thread could have run, and its CPU was another's; 0 where the kernel does not count them."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("work", choices=WORK)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, help="how many to do, at least 1")
    length.add_argument("--seconds", type=float, help="do as many steps as begin in this time")
    parser.add_argument("--result", type=Path, metavar="FILE", required=True, help="where to write what was done, as JSON")
    options = parser.parse_args()
    steps, seconds = run(WORK[options.work](), options.steps, options.seconds or 0)
    result = {"steps": steps, "seconds": seconds, "cpus": sorted(os.sched_getaffinity(0)), "waited": waited()}
    options.result.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
