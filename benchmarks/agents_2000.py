"""Performance of a scheduler with 2,000 nodes of eight GPUs, and 100,000 jobs that wait for them.

The agents are simulated in one process (`many_agents`), with a real stream each; scheduler and database are real, and all
share the machine. Every node is occupied by one job; all other submitted jobs wait.
"""

import asyncio
import resource
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import psutil

from benchmarks.figures import Figure, figure, quantile
from benchmarks.load import Answer, Pacer, submit_all
from benchmarks.scratch import scratch
from examples.cluster import Cluster

BENCH = "agents_2000"
WHOLE_NODE = 8
LIMIT = 120.0


@dataclass(frozen=True, slots=True)
class Size:
    """How large it is. The defaults are what the targets are for."""

    agents: int = 2_000
    waiting: int = 100_000
    """Jobs in the queue when the scheduler is started again."""
    per_second: float = 100
    """Submits while the agents connect again."""
    steady: float = 20.0
    """Seconds for which the steady cost is measured."""
    cuts: int = 3
    """How often all links are cut."""
    restarts: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)


def run() -> list[Figure]:
    with scratch() as folder, Cluster(folder) as cluster:
        cluster.start_scheduler()
        return asyncio.run(measure(cluster, Size()))


async def measure(cluster: Cluster, size: Size) -> list[Figure]:
    """All figures of a cluster whose scheduler has started, and which has no agent yet."""
    many = f"{size.agents:,} agents"
    async with simulated_agents(cluster.address, size.agents) as agents:
        connected = await agents.until("connected")
        figures = [figure(BENCH, f"{many} connect", connected, "s")]
        await submit_all(cluster.address, ["true"], size.agents, WHOLE_NODE, "taken")
        await agents.until("occupied")
        figures += await _steady(cluster, size, many)
        figures += await _reconnect(cluster, size, agents, many)
        if size.restarts:
            began = time.monotonic()
            await submit_all(cluster.address, ["true"], size.waiting, 1, "waiting")
            figures.append(
                figure(BENCH, f"{size.waiting:,} submits meanwhile", size.waiting / (time.monotonic() - began), "/s")
            )
            figures += [await _restart(cluster, agents, size, number) for number in size.restarts]
            figures.append(
                figure(BENCH, f"memory with {size.waiting:,} jobs", _scheduler(cluster).memory_info().rss / 2**20, "MiB")
            )
    return figures


async def _steady(cluster: Cluster, size: Size, many: str) -> list[Figure]:
    await asyncio.sleep(size.steady / 4)
    process = _scheduler(cluster)
    before, began = _seconds(process), time.monotonic()
    await asyncio.sleep(size.steady)
    share = 100 * (_seconds(process) - before) / (time.monotonic() - began)
    return [
        figure(BENCH, f"the scheduler with {many}, of a core", share, "%", at_most=50),
        figure(BENCH, f"its memory with {many}", process.memory_info().rss / 2**20, "MiB", at_most=1024),
    ]


async def _reconnect(cluster: Cluster, size: Size, agents: "Agents", many: str) -> list[Figure]:
    async with Pacer(cluster.address, size.per_second, devices=1, prefix="quiet") as quiet:
        await asyncio.sleep(size.steady / 4)
    took: list[float] = []
    answers: list[Answer] = []
    for number in range(size.cuts):
        async with Pacer(cluster.address, size.per_second, devices=1, prefix=f"cut-{number}") as pacer:
            await asyncio.sleep(0.5)
            pacer.answers.clear()
            agents.say("cut")
            took.append(await agents.until("connected"))
        answers += pacer.answers
    codes = Counter(answer.code for answer in answers)
    failed = len(answers) - codes[grpc.StatusCode.OK]
    return [
        figure(BENCH, "submit, p99, nothing else going on", 1000 * _p99(quiet.answers), "ms"),
        figure(BENCH, f"{many} connect again at once", max(took), "s", at_most=5),
        figure(BENCH, "submit meanwhile, median", 1000 * quantile([answer.seconds for answer in answers], 0.5), "ms"),
        figure(BENCH, "submit meanwhile, p99", 1000 * _p99(answers), "ms", at_most=100),
        figure(BENCH, f"  of {len(answers):,}, cancelled by nobody", codes[grpc.StatusCode.CANCELLED], "", at_most=0),
        figure(BENCH, "  failed", failed, "", at_most=0),
    ]


async def _restart(cluster: Cluster, agents: "Agents", size: Size, number: signal.Signals) -> Figure:
    """From the signal until a job is started on a node where one ended meanwhile."""
    began = time.monotonic()
    process = cluster.processes["scheduler"]
    process.send_signal(number)
    await asyncio.to_thread(process.wait, LIMIT)
    agents.say(f"end {min(20, size.agents)}")
    await asyncio.to_thread(cluster.start_scheduler)
    await agents.until("started")
    took = time.monotonic() - began
    return figure(BENCH, f"first start with {size.waiting:,} jobs, after {number.name}", took, "s", at_most=15)


class Agents:
    """The process of the agents: what it is told, and what it says."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())

    async def until(self, word: str) -> float:
        """Reads on until this is said; the seconds that come with it."""
        assert self._process.stdout is not None
        async with asyncio.timeout(LIMIT):
            while line := await self._process.stdout.readline():
                said, *seconds = line.decode().split()
                if said == word:
                    return float(seconds[0]) if seconds else 0.0
        raise RuntimeError(f"the agents ended before they were {word}")


@asynccontextmanager
async def simulated_agents(address: str, count: int) -> AsyncIterator[Agents]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # which the process inherits
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.many_agents", address, str(count)), stdin=PIPE, stdout=PIPE
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        yield Agents(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(20):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _scheduler(cluster: Cluster) -> psutil.Process:
    return psutil.Process(cluster.processes["scheduler"].pid)


def _seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process, user and kernel."""
    used = process.cpu_times()
    return used.user + used.system


def _p99(answers: Sequence[Answer]) -> float:
    return quantile([answer.seconds for answer in answers], 0.99)
