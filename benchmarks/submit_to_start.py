"""How long from the Submit call to the user's command at work, on an idle cluster; HyperQueue beside it.

The command is `date +%s%N`: the first thing that it does is to read the clock, and its answer is in the job's log. So the
figure includes the loading of a small C program; what that alone costs is measured too, and is in it for both systems.
Their submits alternate, each through its own Python client, and each waits until the last job has ended, and then for a
moment. Between them, on the same idle machine: an empty gRPC call and the smallest durable commit, of which a submit to Ebb
needs two and one.
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hyperqueue import Client as HyperQueue
from hyperqueue import Job

from benchmarks import bare, hyperqueue_cluster
from benchmarks.figures import Figure, figure, quantile
from benchmarks.scratch import scratch
from client_sdk import Client
from examples.cluster import Cluster

SUBMITS = 200
WARM_UP = 20
PAUSE = 0.04
"""Seconds until it is looked whether a job has ended, when nothing disturbs it, and before the next begins: the cluster is
idle then."""
COMMAND = [shutil.which("date") or "/bin/date", "+%s%N"]


def run() -> list[Figure]:
    figures: tuple[list[float], ...] = ([], [], [], [], [])
    ebb, hyperqueue, command, call, commit = figures
    with (
        scratch() as folder,
        hyperqueue_cluster.serving(folder / "hyperqueue", cores=20) as theirs,
        Cluster(folder / "ebb") as cluster,
        bare.calls() as make_call,
        bare.commits(folder / "bare") as make_commit,
    ):
        cluster.start_scheduler()
        cluster.start_agent("node-1", "cpu-20c")
        with Client(cluster.address) as ours:
            numbers = count()
            turns: tuple[tuple[list[float], Callable[[], float]], ...] = (
                (ebb, lambda: _ebb(ours)),
                (hyperqueue, lambda: _hyperqueue(theirs, folder / f"hyperqueue-{next(numbers)}")),
                (command, _command),
                (call, make_call),
                (commit, make_commit),
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
    job = Job()
    job.program(COMMAND, stdout=str(output), stderr=None)
    began = time.time_ns()
    client.submit(job)
    time.sleep(PAUSE)
    while not output.exists() or not (said := output.read_text()):
        time.sleep(PAUSE)
    return (int(said) - began) / 1e6


def _command() -> float:
    began = time.time_ns()
    return (int(subprocess.run(COMMAND, capture_output=True, check=True).stdout) - began) / 1e6


def _rows(
    ebb: list[float], hyperqueue: list[float], command: list[float], call: list[float], commit: list[float]
) -> list[Figure]:
    def row(metric: str, value: float, unit: str = "ms", at_most: float | None = None) -> Figure:
        return figure("submit_to_start", metric, value, unit, at_most=at_most)

    ours, theirs = quantile(ebb, 0.5), quantile(hyperqueue, 0.5)
    return [
        row("Ebb p50", ours, at_most=10),
        row("Ebb p99", quantile(ebb, 0.99), at_most=25),
        row("HyperQueue p50", theirs),
        row("HyperQueue p99", quantile(hyperqueue, 0.99)),
        row("p50 over HyperQueue's", ours / theirs, "x", at_most=1.3),
        row("the command alone, p50", quantile(command, 0.5)),
        row("an empty gRPC call to its handler, p50", quantile(call, 0.5)),
        row("a durable commit of one row, p50", quantile(commit, 0.5)),
    ]
