"""How responsive the scheduler is with 5,000 queued jobs, by policy: with `fifo`, and with `allox`, which matches them all.

A node of 20 CPUs has 12 of them in use. Each queued job asks for 16 CPUs, or for 14 in another configuration, and so none
starts, but a matching is made again and again. Measured are a submit into the queue, and the time from the submit of a job of
higher priority, which fits, to its command at work.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import Figure, figure, quantile
from benchmarks.scratch import scratch
from benchmarks.submit_to_start import COMMAND, PAUSE
from client_sdk import Alternative, Client
from examples.cluster import Cluster

QUEUED = 5000
MEASURED = 200
OTHER: Alternative = {"cpus": 14, "estimate": "2m"}


def run() -> list[Figure]:
    return [row for policy in ("fifo", "allox") for row in _measure(policy)]


def _measure(policy: str) -> list[Figure]:
    into_queue: list[float] = []
    to_start: list[float] = []
    with scratch() as folder, Cluster(folder / policy, ["--policy", policy]) as cluster:
        cluster.start_scheduler()
        cluster.start_agent("node-1", "cpu-20c")
        with Client(cluster.address) as client:
            client.submit(["sleep", "100000"], cpus=12, estimate="1h")
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda _: _queue(client), range(QUEUED)))
            for _ in range(MEASURED):
                time.sleep(PAUSE)
                into_queue.append(_queue(client))
                time.sleep(PAUSE)
                to_start.append(_start(client))
    return [
        figure("long_queue", f"{policy}: {what}, {name}", quantile(values, at), "ms")
        for what, values in (("submit into the queue", into_queue), ("submit to start", to_start))
        for name, at in (("p50", 0.5), ("p99", 0.99))
    ]


def _queue(client: Client) -> float:
    began = time.time_ns()
    client.submit(["true"], cpus=16, estimate="1m", alternatives=[OTHER])
    return (time.time_ns() - began) / 1e6


def _start(client: Client) -> float:
    began = time.time_ns()
    job = client.submit(COMMAND, cpus=1, priority=10)
    while not job.ended:
        time.sleep(PAUSE)
        job = client.get(job.id)
    assert job.log_path is not None
    return (int(Path(job.log_path).read_text()) - began) / 1e6
