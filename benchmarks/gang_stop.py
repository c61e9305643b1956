"""Cost of being able to stop all ranks of a gang at one step, and of an all-reduce at every step instead.

The first figures are processor time, so that other programs have little effect. Those of the process group need torch, and are
omitted without it.
"""

import importlib.util
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, figure
from benchmarks.scratch import scratch
from client_sdk.training import Checkpointer
from client_sdk.training._gang.agreement import Agreement
from client_sdk.training._gang.notices import FileChannel
from client_sdk.training._gang.ranks import Ranks

BENCH = "gang_stop"
ROOT = Path(__file__).parents[1]
BOUNDARIES = 200_000
ROUNDS = 5
IDLE_S = 10.0
RANKS = 8
STOPS = 50
PAIRS = 3
REDUCTIONS = 2_000

IDLE = """
import contextlib, sys, time
import torch.distributed as dist
from client_sdk.training import Checkpointer

with CONTEXT():
    dist.init_process_group("gloo")
    time.sleep(1)
    dist.barrier()
    began = time.process_time()
    time.sleep(float(sys.argv[1]))
    print((time.process_time() - began) / float(sys.argv[1]))
    dist.barrier()
"""
REDUCE = """
import sys, time
import torch, torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
stop, before = torch.zeros(1, dtype=torch.int64), None
for _ in range(100):
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
cpu, wall = time.process_time(), time.perf_counter()
for _ in range(int(float(sys.argv[1]))):
    work = dist.all_reduce(stop, op=dist.ReduceOp.MAX, async_op=True)
    if before is not None:
        before.wait()
    before = work
before.wait()
print((time.process_time() - cpu) / float(sys.argv[1]), (time.perf_counter() - wall) / float(sys.argv[1]))
dist.barrier()
"""


def run() -> list[Figure]:
    with scratch() as folder:
        alone, ranked = _boundary(folder / "alone", {}), _boundary(folder / "ranked", _environment(0, 2, 0))
        idle = _idle(folder / "idle")
        agreed = _agreed(folder / "agreed")
    figures = [
        figure(BENCH, "a boundary of a single process", alone * 1e6, "us"),
        figure(BENCH, "a boundary of a rank", ranked * 1e6, "us", at_most=0.5),
        figure(BENCH, "looking for a stop by files, of a core", idle * 100, "%", at_most=0.1),
        figure(BENCH, f"{RANKS} ranks agree by files, once all know of the stop", agreed * 1e3, "ms", at_most=500),
    ]
    if importlib.util.find_spec("torch") is None:
        return figures
    with scratch() as folder:
        looking, without = (_looking(folder, context) for context in ("Checkpointer", "contextlib.nullcontext"))
        reduced = [tuple(map(float, line.split())) for line in _pair(folder, REDUCE, REDUCTIONS)]
    return [
        *figures,
        figure(BENCH, "looking for a stop by files and store, of a core", (looking - without) * 100, "%", at_most=0.2),
        figure(BENCH, "instead, an asynchronous all-reduce a step: CPU", max(cpu for cpu, _ in reduced) * 1e6, "us"),
        figure(BENCH, "the same: time", max(wall for _, wall in reduced) * 1e6, "us"),
    ]


def _environment(rank: int, world: int, port: int) -> dict[str, str]:
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "EBB_RUN": "1", **meet}


def _boundary(folder: Path, environment: dict[str, str]) -> float:
    with Checkpointer(folder, environment=environment) as checkpoint:
        rounds = []
        for _ in range(ROUNDS):
            at_boundary, begin = checkpoint.at_boundary, time.thread_time()
            for _ in range(BOUNDARIES):
                at_boundary(dict)
            counted = time.thread_time() - begin
            begin = time.thread_time()
            for _ in range(BOUNDARIES):
                pass
            rounds.append((counted - (time.thread_time() - begin)) / BOUNDARIES)
        return statistics.median(rounds)


def _idle(folder: Path) -> float:
    with Checkpointer(folder, environment=_environment(0, 2, 0) | {"EBB_RUN_DIR": str(folder)}):
        begin = time.process_time()
        time.sleep(IDLE_S)
        return (time.process_time() - begin) / IDLE_S


def _agreed(folder: Path) -> float:
    """Seconds from the stop until the last rank knows the common boundary, with the ranks as threads of one process."""
    times = []
    for number in range(STOPS):
        gang = []
        for own in range(RANKS):
            ranks = Ranks(own, tuple(range(RANKS)), RANKS)
            channel = FileChannel(folder, "bench", ranks, f"{number:06}.0.1")
            channel.open()
            gang.append(Agreement(ranks, [channel], "", None, lambda: None, partial(int, own), lambda: None))
        for rank in gang:
            rank.start()
        begin = time.perf_counter()
        threads = [threading.Thread(target=rank.stops_at, args=(own,)) for own, rank in enumerate(gang)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        times.append(time.perf_counter() - begin)
        for rank in gang:
            rank.close(done=True)
    return statistics.median(times)


def _looking(folder: Path, context: str) -> float:
    """The share of a core that two ranks with a process group take while they do nothing, each."""
    program = IDLE.replace("CONTEXT", context)
    return statistics.median(float(line) for _ in range(PAIRS) for line in _pair(folder, program, IDLE_S))


def _pair(folder: Path, program: str, argument: float) -> list[str]:
    """Return the output of two processes, the ranks of a gang."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:
        pair = []
        for rank in (0, 1):
            own = {**_environment(rank, 2, port), "EBB_CHECKPOINT_DIR": str(folder / "pair"), "PYTHONPATH": str(ROOT)}
            command = [sys.executable, "-c", program, str(argument)]
            environment = {**os.environ, **own, "OMP_NUM_THREADS": "1"}
            pair.append(stack.enter_context(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)))
        return [process.communicate(timeout=300)[0] for process in pair]
