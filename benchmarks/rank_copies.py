"""Bytes and time of a checkpoint that the ranks of a data-parallel training save together, by the number of ranks."""

import os
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, figure
from examples.cluster import free_port

BENCH = "checkpoint"
MEGABYTES = 200
LIMIT = 180.0
ROOT = Path(__file__).parents[1]


class Saves(NamedTuple):
    size: int
    """Bytes of one checkpoint, all files together."""
    seconds: float
    """From the end of a step to the begin of the next one, with the save between them: the median."""


def run(folder: Path) -> list[Figure]:
    if find_spec("torch") is None:
        return []
    found = {ranks: saves(folder / str(ranks), ranks, MEGABYTES) for ranks in (1, 2, 4)}
    more = max(one.size for one in found.values()) / found[1].size - 1
    return [
        figure(BENCH, "data-parallel: what 4 or 2 ranks save, beyond what 1 does", 100 * more, "%", at_most=1.0),
        *(
            figure(BENCH, f"data-parallel: a step of {ranks} ranks with a save of {MEGABYTES} MB", one.seconds, "s")
            for ranks, one in found.items()
        ),
    ]


def saves(folder: Path, ranks: int, megabytes: int) -> Saves:
    """Trains with so many ranks. Raises RuntimeError if one fails."""
    folder.mkdir(parents=True)
    shared = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "EBB_CHECKPOINT_DIR": str(folder / "saved"),
        "EBB_RUN": "1",
        "TIMES": str(folder / "times"),
        "MEGABYTES": str(megabytes),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(ROOT / "benchmarks" / "saving_rank.py")]
    with (folder / "log").open("wb") as log:
        started = [
            subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=log, stderr=log) for rank in range(ranks)
        ]
        try:
            codes = [process.wait(LIMIT) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}:\n{(folder / 'log').read_text()[-2000:]}")
    files = [path for path in (folder / "saved").glob("*-step-*/*") if path.is_file()]
    last = max(_step(path) for path in files)
    size = sum(path.stat().st_size for path in files if _step(path) == last)
    times = [float(word) for word in (folder / "times").read_text().split()]
    return Saves(size, statistics.median(times[1:]))


def _step(file: Path) -> str:
    """Return the step of a checkpoint's file."""
    return file.parent.name.partition("-step-")[2].partition("-")[0]
