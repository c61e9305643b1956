"""Time from a submit until the user's command runs, on an idle cluster, compared with a trivial scheduler.

The trivial scheduler shows the part of a start that is gRPC, one durable commit and the command. Ebb's time in addition to that
has the target; HyperQueue is measured for comparison.

The command is `date +%s%N`: it immediately reads the clock, and its output is in the job's log. So the figure includes the
loading of a small C program, whose cost is also measured alone, and is included for all systems. Their submits alternate, each
through its own Python client, and each waits until the last job has ended, and then for a moment.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hyperqueue import Client as HyperQueue
from hyperqueue import Job

from benchmarks import hyperqueue_cluster, trivial
from benchmarks.figures import Figure, figure, quantile
from benchmarks.scratch import scratch
from client_sdk import Client
from examples.cluster import Cluster

SUBMITS = 200
WARM_UP = 20
PAUSE = float(os.environ.get("EBB_BENCH_PAUSE", "0.04"))
"""Seconds until it is looked whether a job has ended, when nothing disturbs it, and before the next begins: the cluster is
idle then. Of 3, 10, 20, 40 and 200 ms this is where HyperQueue is quickest."""
COMMAND = [shutil.which("date") or "/bin/date", "+%s%N"]


def run() -> list[Figure]:
    os.environ.setdefault("LANG", "C.UTF-8")  # as Ebb's agent does for its jobs: a locale costs the command 0.3 ms to load
    figures: tuple[list[float], ...] = ([], [], [], [])
    ebb, hyperqueue, least, command = figures
    with (
        scratch() as folder,
        hyperqueue_cluster.serving(folder / "hyperqueue", cores=20) as theirs,
        Cluster(folder / "ebb") as cluster,
        trivial.serving(folder / "trivial") as start,
    ):
        cluster.start_scheduler()
        cluster.start_agent("node-1", "cpu-20c")
        with Client(cluster.address) as ours:
            logs = (folder / f"log-{number}" for number in count())
            turns: tuple[tuple[list[float], Callable[[], float]], ...] = (
                (ebb, lambda: _ebb(ours)),
                (hyperqueue, lambda: _hyperqueue(theirs, next(logs))),
                (least, lambda: _trivial(start, next(logs))),
                (command, _command),
            )
            for _ in range(WARM_UP + SUBMITS):
                for taken, take in turns:
                    time.sleep(PAUSE)  # before each the same: what comes at once after another finds the machine awake
                    taken.append(take())
    return _rows(*(taken[WARM_UP:] for taken in figures))


def _ebb(client: Client) -> float:
    began = time.time_ns()
    job = client.submit(COMMAND)
    while not job.ended:
        time.sleep(PAUSE)
        job = client.get(job.id)
    assert job.log_path is not None
    return (int(Path(job.log_path).read_text()) - began) / 1e6


def _hyperqueue(client: HyperQueue, output: Path) -> float:
    began = time.time_ns()
    job = Job()
    job.program(COMMAND, stdout=str(output), stderr=None)
    client.submit(job)
    return (_said(output) - began) / 1e6


def _trivial(start: trivial.Start, output: Path) -> float:
    began = time.time_ns()
    start(output, COMMAND)
    return (_said(output) - began) / 1e6


def _said(output: Path) -> int:
    """Wait for the output of the command, and return it."""
    time.sleep(PAUSE)
    while not output.exists() or not (said := output.read_text()):
        time.sleep(PAUSE)
    return int(said)


def _command() -> float:
    began = time.time_ns()
    return (int(subprocess.run(COMMAND, capture_output=True, check=True).stdout) - began) / 1e6


def _rows(ebb: list[float], hyperqueue: list[float], least: list[float], command: list[float]) -> list[Figure]:
    def row(metric: str, value: float, unit: str = "ms", at_most: float | None = None) -> Figure:
        return figure("submit_to_start", metric, value, unit, at_most=at_most)

    ours, floor = quantile(ebb, 0.5), quantile(least, 0.5)
    return [
        row("Ebb p50", ours, at_most=10),
        row("Ebb p99", quantile(ebb, 0.99), at_most=25),
        row("a trivial scheduler's p50", floor),
        row("a trivial scheduler's p99", quantile(least, 0.99)),
        row("Ebb's p50 above the trivial scheduler's", ours - floor, at_most=2.5),
        row("HyperQueue p50, for information", quantile(hyperqueue, 0.5)),
        row("HyperQueue p99, for information", quantile(hyperqueue, 0.99)),
        row("the command alone, p50", quantile(command, 0.5)),
    ]
