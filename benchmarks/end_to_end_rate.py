"""Jobs per second from end to end: submitted, placed, run (`true`), and their end recorded; compared with HyperQueue.

Ebb gets 3,000 jobs, one durable call each. HyperQueue gets the same 3,000 jobs, one call each, and once more as 3,000 tasks
of one job in a single call, the best that its client can do. Both may run 20 at a time, and both keep a log file for each.
Ebb's time is from the first submit to the last end; HyperQueue's to the last start (its client polls for ends once a
second), which is in its favor. They take turns, and the medians count.
"""

import asyncio
import shutil
import statistics
import time
from pathlib import Path

from hyperqueue import Job

from benchmarks import hyperqueue_cluster
from benchmarks.figures import Figure, figure
from benchmarks.load import submit_all
from benchmarks.scratch import scratch
from client_sdk import Client, JobState
from examples.cluster import Cluster

JOBS = 3_000
AT_ONCE = 20
ROUNDS = 3
COMMAND = [shutil.which("true") or "/bin/true"]


def run() -> list[Figure]:
    ours, jobs, tasks = [], [], []
    for _ in range(ROUNDS):
        with scratch() as folder:
            ours.append(_ebb(folder / "ebb"))
            jobs.append(_hyperqueue(folder / "jobs", calls=JOBS))
            tasks.append(_hyperqueue(folder / "tasks", calls=1))
    ebb, by_job, by_task = map(statistics.median, (ours, jobs, tasks))
    return [
        figure("end_to_end_rate", f"Ebb, {JOBS:,} jobs", ebb, "/s", at_least=200),
        figure("end_to_end_rate", f"HyperQueue, {JOBS:,} jobs", by_job, "/s"),
        figure("end_to_end_rate", "Ebb over HyperQueue, job by job", ebb / by_job, "x", at_least=0.7),
        figure("end_to_end_rate", f"HyperQueue, {JOBS:,} tasks of one job", by_task, "/s"),
        figure("end_to_end_rate", "Ebb over HyperQueue's tasks of one job", ebb / by_task, "x"),
    ]


def _ebb(folder: Path) -> float:
    with Cluster(folder) as cluster:
        cluster.start_scheduler()
        cluster.start_agent("node-1", "cpu-20c")
        with Client(cluster.address) as client:
            client.wait(client.submit(COMMAND), timeout=30)  # the agent is there
            began = time.time()
            ids = set(asyncio.run(submit_all(cluster.address, COMMAND, JOBS)))
            last = max(ids)
            while not client.get(last).ended:
                time.sleep(0.1)
            jobs = list(client.list())
            while not all(job.ended for job in jobs):  # the one submitted last need not end last
                time.sleep(0.1)
                jobs = list(client.list())
    succeeded = [job.end_time.timestamp() for job in jobs if job.id in ids and job.state is JobState.SUCCEEDED and job.end_time]
    if len(succeeded) != JOBS:
        raise RuntimeError(f"of {JOBS} jobs, {len(succeeded)} succeeded")
    return JOBS / (max(succeeded) - began)


def _hyperqueue(folder: Path, calls: int) -> float:
    with hyperqueue_cluster.serving(folder, cores=AT_ONCE) as client:
        logs = [folder / f"{number}.log" for number in range(JOBS)]
        share = JOBS // calls
        jobs = [Job(default_workdir=str(folder)) for _ in range(calls)]
        for number, log in enumerate(logs):
            jobs[number // share].program(COMMAND, stdout=str(log), stderr=None)
        began = time.time()
        hyperqueue_cluster.finish(client, *jobs)
        return JOBS / (max(log.stat().st_mtime for log in logs) - began)
