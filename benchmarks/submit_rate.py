"""How many durable submits a second one scheduler takes: single calls, at most 256 in flight, no agent, so jobs queue.

Every answer means that the job is on disk: PostgreSQL's fsync is on. Client, scheduler and database share the machine.
"""

import asyncio
import time

from benchmarks.figures import Figure, figure
from benchmarks.load import submit_all
from benchmarks.scratch import scratch
from client_sdk import Client
from examples.cluster import Cluster

SUBMITS = 10_000


def run() -> list[Figure]:
    with scratch() as folder, Cluster(folder) as cluster:
        cluster.start_scheduler()
        began = time.perf_counter()
        ids = asyncio.run(submit_all(cluster.address, ["true"], SUBMITS))
        took = time.perf_counter() - began
        with Client(cluster.address) as client:
            stored = {job.id for job in client.list()}
    if stored != set(ids):
        raise RuntimeError(f"{len(ids)} submits were answered, the database has {len(stored)} jobs")
    return [figure("submit_rate", f"durable submits, {SUBMITS:,} in all", SUBMITS / took, "/s", at_least=1000)]
