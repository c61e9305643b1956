"""Cost of a checkpoint of 500 MB for a training: how long a save in the background, or in the foreground, stops the loop.

The state is 32 PyTorch tensors if it is installed, and 32 NumPy arrays otherwise. The stall of each save is compared with one
copy of the same state into memory that is already in use, measured right before and after the save. The first save of a run
also gets its memory from the system: it is shown for comparison, together with a copy into new memory.
"""

import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import rank_copies
from benchmarks.figures import Figure, figure
from client_sdk.training import Job

BYTES = 500_000_000
TENSORS = 32
ROUNDS = 7


def run() -> list[Figure]:
    if find_spec("torch") is not None:
        import torch

        def new() -> Any:
            return torch.ones(BYTES // TENSORS // 4, dtype=torch.float32)

        def copy_into(there: Any, here: Any) -> None:
            there.copy_(here)
    else:

        def new() -> Any:
            return np.ones(BYTES // TENSORS // 4, dtype=np.float32)

        def copy_into(there: Any, here: Any) -> None:
            np.copyto(there, here)

    state = {f"layer{number}": new() for number in range(TENSORS)}
    warm = copy.deepcopy(state)

    def copy_all() -> None:
        for name, value in state.items():
            copy_into(warm[name], value)

    fresh = statistics.median(_timed(lambda: copy.deepcopy(state)) for _ in range(3))
    with tempfile.TemporaryDirectory(prefix="ebb-bench-") as folder:
        first, stalls, copies, behind = _background(Path(folder) / "background", state, lambda: _timed(copy_all))
        foreground = _foreground(Path(folder) / "foreground", state)
    with tempfile.TemporaryDirectory(prefix="ebb-bench-") as folder:
        of_ranks = rank_copies.run(Path(folder))
    ratio = statistics.median(stall / copied for stall, copied in zip(stalls, copies, strict=True))
    return [
        figure("checkpoint", "one copy of 500 MB in memory", statistics.median(copies), "s"),
        figure("checkpoint", "stall of a background save", statistics.median(stalls), "s"),
        figure("checkpoint", "stall of a background save, in copies", ratio, "x", at_most=1.2),
        figure("checkpoint", "one copy into new memory", fresh, "s"),
        figure("checkpoint", "stall of the first background save", first, "s"),
        figure("checkpoint", "background save until it is on the disk", behind, "s"),
        figure("checkpoint", "foreground save", foreground, "s"),
        *of_ranks,
    ]


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _job(folder: Path, state: Any, background: bool) -> Job:
    job = Job({"EBB_CHECKPOINT_DIR": str(folder)})
    job.checkpointable(model=state, every_steps=1, background=background)
    return job


def _background(folder: Path, state: Any, one_copy: Callable[[], float]) -> tuple[float, list[float], list[float], float]:
    """The first stall, then the others, each with the mean of the copies before and after it; and a whole save."""
    job = _job(folder, state, True)
    stalls, copies, whole = [], [], []
    for _ in job.epochs(1):
        batches = job.steps(range(ROUNDS + 2))
        next(batches)
        begin = time.perf_counter()
        next(batches)
        first = time.perf_counter() - begin
        for _ in range(ROUNDS):
            job._require_saving().wait()
            before = one_copy()
            begin = time.perf_counter()
            next(batches)
            stalls.append(time.perf_counter() - begin)
            job._require_saving().wait()
            whole.append(time.perf_counter() - begin)
            copies.append((before + one_copy()) / 2)
        list(batches)
    return first, stalls, copies, statistics.median(whole)


def _foreground(folder: Path, state: Any) -> float:
    job = _job(folder, state, False)
    batches = job.steps(range(4))
    next(batches)
    times = [_timed(lambda: next(batches)) for _ in range(3)]
    job.finish()
    return statistics.median(times)
