"""Waiting time of a trial on a full node, where a PyTorch training is preempted for it and has to save.

The node has eight devices, and as many trainings. Each trial preempts one training, which saves with `job.checkpointable`. When
the trial has ended, the training resumes, and the next trial arrives. For comparison: the same trial on an idle node.
The trial is `date +%s%N`, whose output is in its log, as in `submit_to_start`. The wait is divided into two parts: from the
submit to the checkpoint on disk, and from there to the start of the trial, which includes the end of the process.
"""

import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.figures import Figure, figure, quantile
from benchmarks.scratch import scratch
from client_sdk import Client, Job, JobState
from examples.cluster import Cluster

BENCH = "trial_start"
DEVICES = 8
TRIALS = 40
PAUSE = 0.1
LIMIT = 120.0
COMMAND = [shutil.which("date") or "/bin/date", "+%s%N"]
ROOT = Path(__file__).parents[1]
TRAINING = """
import time
import torch
from client_sdk.training import job

torch.set_num_threads(1)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.AdamW(model.parameters())
job.checkpointable(model=model, optimizer=optimizer)
for _ in job.steps(range(10**9)):
    loss = model(torch.ones(1, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.2)
"""


def run() -> list[Figure]:
    if find_spec("torch") is None:
        return []
    with scratch() as folder:
        idle = [whole for whole, _ in _trials(folder / "idle", trainings=0)]
        full = _trials(folder / "full", trainings=DEVICES)
    waits, ends = [whole for whole, _ in full], [end for _, end in full]
    return [
        figure(BENCH, "on a full node: p50", quantile(waits, 0.5), "ms"),
        figure(BENCH, "the same, p99", quantile(waits, 0.99), "ms"),
        figure(BENCH, "of it, from the checkpoint on the disk to the start: p50", quantile(ends, 0.5), "ms", at_most=500),
        figure(BENCH, "the same, p99", quantile(ends, 0.99), "ms"),
        figure(BENCH, "on an idle node: p50", quantile(idle, 0.5), "ms"),
        figure(BENCH, "the same, p99", quantile(idle, 0.99), "ms"),
    ]


def _trials(folder: Path, trainings: int) -> list[tuple[float, float]]:
    """Return for each trial the ms to its start from its submit, and from the checkpoint of the preempted training."""
    flags = ("--min-run", "0", "--fitgpp-cap", str(TRIALS))
    with Cluster(folder, flags) as cluster:
        cluster.start_scheduler()
        cluster.start_agent("node-1", "dgx-a100")
        with Client(cluster.address, timeout=LIMIT) as client:
            client.wait(client.submit(COMMAND, cpus=1, memory="1GiB"), timeout=LIMIT)  # the agent is there
            environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-c", TRAINING]
            jobs = [
                client.submit(command, devices=1, cpus=1, memory="1GiB", grace=60, env=environment) for _ in range(trainings)
            ]
            return [_trial(client, jobs, cluster.checkpoints) for _ in range(TRIALS)]


def _trial(client: Client, jobs: list[Job], checkpoints: Path) -> tuple[float, float]:
    _wait_for_steps(client, jobs)
    began = time.time_ns()
    trial = client.wait(client.submit(COMMAND, job_class="trial", devices=1, cpus=1, memory="1GiB"), timeout=LIMIT)
    if trial.state is not JobState.SUCCEEDED or trial.log_path is None:
        raise RuntimeError(f"trial {trial.id} ended as {trial.state.name}")
    started = int(Path(trial.log_path).read_text())
    saved = max((path.stat().st_mtime_ns for path in checkpoints.rglob("*.ckpt")), default=0)
    return (started - began) / 1e6, (started - max(began, saved)) / 1e6


def _wait_for_steps(client: Client, jobs: list[Job]) -> None:
    """Until all trainings run and count steps, and then for a moment."""
    limit = time.monotonic() + LIMIT
    for job in jobs:
        while not ((now := client.get(job)).state is JobState.RUNNING and now.steps):
            if time.monotonic() > limit:
                raise RuntimeError(f"training {job.id} does not train after {LIMIT:g} s: {now.state.name}")
            time.sleep(PAUSE)
    time.sleep(1.0)
