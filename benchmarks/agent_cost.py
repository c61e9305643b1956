"""Cost of an agent for its node: all of its processes, on a node with eight GPUs and a run on each.

A real agent, its launcher and the process that queries the driver; a real scheduler, to which the agent sends its readings
each second; eight runs that sleep. In place of NVML, the driver is the tests' own library, in which the memory of each GPU
rises and falls. Its calls cost nothing, unlike a real driver's: that time has to be added (`make gpu-report` measures it).
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import psutil

from benchmarks.figures import Figure, figure
from benchmarks.scratch import scratch
from client_sdk import Client, Node, NodeState, Unavailable
from examples.cluster import Cluster
from node_agent.devices.reading import Reading
from tests.nvml.conftest import build
from tests.nvml.shim import SOURCE, Shim

T = TypeVar("T")

BENCH = "agent_cost"
MACHINE = SOURCE.with_name("machines") / "hgx-h100.json"
GPUS = 8
SETTLE = 30.0
"""Seconds in which every wave has been looked at."""
MEASURE = 60.0
LIMIT = 60.0
NODE = "node-1"


def run() -> list[Figure]:
    with scratch() as folder:
        shim = Shim(folder / "machine", build(folder))
        shim.load(Reading.model_validate(json.loads(MACHINE.read_text())["reading"]))
        with Cluster(folder / "cluster", ("--heartbeat", "1"), shim.environment) as cluster:
            cluster.start_scheduler()
            cluster.start_agent(NODE, "nvml", "--reserve-memory", "0")
            with Client(cluster.address) as client:
                jobs = _start(client, cluster.folder / NODE, shim)
                time.sleep(SETTLE)
                _check(client.node(NODE))
                agent = _processes(cluster.processes[NODE].pid, cluster.folder / NODE, jobs)
                before, began = _seconds(agent), time.monotonic()
                time.sleep(MEASURE)
                after, took = _seconds(agent), time.monotonic() - began
                memory = {name: process.memory_full_info() for name, process in agent.items()}
                _check(client.node(NODE))
    shares = {name: 100 * (after[name] - before[name]) / took for name in agent}
    mib = {name: (used.pss / 2**20, used.rss / 2**20) for name, used in memory.items()}
    figures = [figure(BENCH, "all processes, of a core", sum(shares.values()), "%", at_most=1)]
    figures += [figure(BENCH, f"  {name}", share, "%") for name, share in shares.items()]
    pss, rss = (sum(each) for each in zip(*mib.values(), strict=True))
    figures.append(figure(BENCH, "resident, shared pages in part (PSS)", pss, "MiB", at_most=120))
    figures += [figure(BENCH, f"  {name}", each, "MiB") for name, (each, _) in mib.items()]
    figures.append(figure(BENCH, "resident, shared pages each time (RSS)", rss, "MiB"))
    return figures


def _start(client: Client, state: Path, shim: Shim) -> set[int]:
    """Start a run on each GPU, with its own memory cycle, and return their pids."""
    _wait(lambda: [node.state for node in client.nodes()] == [NodeState.UP], "the agent connects")
    jobs = [client.submit(["sleep", "3600"], devices=1, cpus=0.1, memory="64MiB") for _ in range(GPUS)]
    pids = set()
    for job in jobs:
        pid = _wait(lambda: _pid(state, job.id), f"job {job.id} runs")  # noqa: B023
        (gpu,) = client.get(job.id).devices
        shim.wave(gpu, 0.7 + 0.3 * gpu, 900, 40_000)
        shim.processes(gpu, {pid: None})
        shim.utilisation(gpu, 90)
        pids.add(pid)
    return pids


def _pid(state: Path, job_id: int) -> int:
    """0: it has no process yet."""
    noted = [file.read_text() for file in state.glob(f"runs/*/{job_id}.1/process.json")]
    return int(json.loads(noted[0])["pid"]) if noted and noted[0] else 0


def _check(node: Node) -> None:
    """That what is to be measured did happen."""
    seen = node.observations
    if seen is None or seen.time is None or time.time() - seen.time.timestamp() > 5:
        raise RuntimeError(f"the scheduler does not hear what the agent sees: {seen}")
    waves = [cycle.period for cycle in seen.cycles]
    if len(waves) != GPUS or not all(waves):
        raise RuntimeError(f"not every wave is seen: {waves}")


def _processes(agent: int, state: Path, jobs: set[int]) -> dict[str, psutil.Process]:
    """All but the jobs, each by what it is. The launcher is nobody's child."""
    own = [psutil.Process(agent), *psutil.Process(agent).children(recursive=True)]
    launchers = [process for process in psutil.process_iter() if _is_launcher(process, state)]
    found: dict[str, psutil.Process] = {}
    for process in (*own, *launchers):
        if process.pid not in jobs and process not in found.values():
            said = " ".join(process.cmdline())
            name = next((name for name in ("sidecar", "launcher") if name in said), "agent")
            if name in found:
                raise RuntimeError(f"what is process {process.pid}, {said}?")
            found[name] = process
    if set(found) != {"agent", "launcher", "sidecar"}:
        raise RuntimeError(f"not the processes of an agent: {found}")
    return found


def _is_launcher(process: psutil.Process, state: Path) -> bool:
    try:
        return any(part.endswith("launcher.py") for part in process.cmdline()) and process.cwd() == str(state)
    except psutil.Error:
        return False


def _seconds(processes: Mapping[str, psutil.Process]) -> dict[str, float]:
    """Return the CPU seconds of each process, user and kernel."""
    return {name: (used := process.cpu_times()).user + used.system for name, process in processes.items()}


def _wait(what: Callable[[], T], until: str) -> T:
    """The first true value of `what`."""
    end = time.monotonic() + LIMIT
    while True:
        try:
            if value := what():
                return value
        except Unavailable:
            pass
        if time.monotonic() > end:
            raise RuntimeError(f"not within {LIMIT:g} s: {until}")
        time.sleep(0.05)
