"""Whether a leader that is only slow keeps its leadership: the load of end_to_end_rate, and a program that never rests on
each core.

Two schedulers with their default settings lead and stand by for EBB_BENCH_MINUTES (3). Rounds of 3,000 jobs that run `true`
follow each other, a watch of all jobs is open, and the lease is read from the database twenty times a second.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import psycopg

from benchmarks.end_to_end_rate import COMMAND, JOBS
from benchmarks.figures import Figure, figure
from benchmarks.load import submit_all
from benchmarks.pair import LIMIT, Pair, pair
from benchmarks.scratch import scratch
from client_sdk import Client

BUSY = "while True: pass"


def run() -> list[Figure]:
    minutes = float(os.environ.get("EBB_BENCH_MINUTES", "3"))
    rates: list[float] = []
    refused = 0
    with scratch() as folder, pair(folder) as two, Client(two.address, timeout=LIMIT) as client:
        client.wait(client.submit(COMMAND), timeout=LIMIT)  # the agent is there
        epoch, leader = two.epoch(), two.leader_address()
        with burners(), Lease(two) as lease:
            ends = time.monotonic() + minutes * 60
            while time.monotonic() < ends and two.epoch() == epoch:
                began = time.monotonic()
                try:
                    asyncio.run(submit_all(leader, COMMAND, JOBS, prefix=str(began)))
                except* grpc.RpcError:  # of a leader that is lost, or of a commit that was
                    refused += 1
                while two.ask("SELECT count(*) FROM job WHERE ended_us IS NULL") != (0,):
                    time.sleep(0.2)
                rates.append(JOBS / (time.monotonic() - began))
        lost = two.epoch() - epoch
        logs = "".join(map(two.log, ("scheduler", "standby")))
        joined = two.log("node-1").count(": connected to ")
    return [
        figure("failover_under_load", f"leaders lost in {minutes:g} minutes", lost, "", at_most=0),
        figure("failover_under_load", "rounds in which a submit was refused", refused, "", at_most=0),
        figure("failover_under_load", "connections that the agent lost", joined - 1, "", at_most=0),
        figure("failover_under_load", "renewals that failed", logs.count("could not renew the lease"), ""),
        figure("failover_under_load", "the lease: least that was left of it", min(lease.left), "s"),
        figure("failover_under_load", "the lease: left of it, median", statistics.median(lease.left), "s"),
        figure("failover_under_load", "jobs", statistics.median(rates), "/s"),
    ]


@contextmanager
def burners() -> Iterator[None]:
    """A process for each core that keeps it busy."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Lease:
    """Notes how much is left of the lease, by the database's clock."""

    def __init__(self, two: Pair) -> None:
        self.left: list[float] = []
        self._url = two.url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Lease":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        query = "SELECT extract(epoch FROM expires_at - clock_timestamp())::float8 FROM leader"
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._over.wait(0.05):
                ((left,),) = connection.execute(query).fetchall()
                self.left.append(left)
