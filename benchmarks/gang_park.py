"""How long ranks on several nodes take to park after one step on which they agree, and what their threads cost meanwhile.

Ranks over gloo in processes of this machine stand for nodes. Half of them are asked at once, the others 1 ms later. Times are
from the first request to the last answer; a step takes some 5 ms, and tensors of 4 MB are moved.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import ebb_inject
from benchmarks.figures import Figure, figure
from benchmarks.scratch import scratch
from ebb_inject.ebb_hook import control

BENCH = "gang_park"
PARKS = 40
IDLE_S = 20.0
LIMIT = 120.0

PROGRAM = """
import sys, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, loss = torch.randn(2, 1000), torch.zeros(1)
idle = float(sys.argv[1])
for _ in range(3) if idle else iter(int, 1):
    time.sleep(0.004)
    model(inputs).sum().backward()
    dist.all_reduce(loss)
    optimizer.step()
    optimizer.zero_grad()
time.sleep(2)
dist.barrier()
began = time.process_time()
time.sleep(idle)
print((time.process_time() - began) / idle, flush=True)
dist.barrier()
"""


@contextmanager
def _ranks(folder: Path, world: int, idle: float, nodes: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Each in a folder of its own, as if it were on a node of its own."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        port = str(kept.getsockname()[1])
    told = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "EBB_NODES": nodes}
    told |= {"PYTHONPATH": ebb_inject.FOLDER, "EBB_PARK_DEVICES": "cpu", "OMP_NUM_THREADS": "1"}
    ranks = []
    try:
        for rank in range(world):
            place = folder / str(rank)
            place.mkdir(parents=True)
            mine = {"RANK": str(rank), "EBB_TASK": str(rank), "EBB_PARK_DIR": str(place / "park")}
            command = [sys.executable, "-c", PROGRAM, str(idle)]
            ranks.append(subprocess.Popen(command, env=os.environ | told | mine, stdout=subprocess.PIPE, text=True))
        yield ranks
    finally:
        for process in ranks:
            process.kill()
        for process in ranks:
            process.wait()


def _paths(folder: Path, world: int) -> list[str]:
    end = time.monotonic() + LIMIT
    while True:
        found = [path for rank in range(world) for path in control.live(str(folder / str(rank) / "park"))]
        if len(found) == world:
            return found
        if time.monotonic() > end:
            raise RuntimeError(f"{len(found)} of {world} ranks train after {LIMIT:g} s")
        time.sleep(0.01)


def _answers(numbers: dict[str, int], state: str) -> float:
    """When the last of these requests was answered so."""
    left, end = dict(numbers), time.monotonic() + LIMIT
    while left:
        for path, number in list(left.items()):
            found = control.answer(path)
            if found is not None and found["request"] == number:
                if found["state"] != state:
                    raise RuntimeError(json.dumps(found))
                del left[path]
        if time.monotonic() > end:
            raise RuntimeError(f"no answer of {sorted(left)}")
        time.sleep(0.0005)
    return time.monotonic()


def _parks(folder: Path, world: int) -> list[float]:
    """Seconds from the first request to the last answer, of each park."""
    found = []
    with _ranks(folder, world, 0.0, "a,b"):
        paths = _paths(folder, world)
        time.sleep(1.0)
        for park in range(1, PARKS + 1):
            numbers: dict[str, int] = {}
            began = time.monotonic()
            for half in (paths[: world // 2], paths[world // 2 :]):
                numbers |= {path: control.send(path, control.PARK_TOGETHER, at_step=park) for path in half}
                time.sleep(0.001)
            found.append(_answers(numbers, control.PARKED) - began)
            _answers({path: control.send(path, control.RESUME) for path in paths}, control.RUNNING)
            time.sleep(0.02)
    return found


def _idle(folder: Path, nodes: str) -> float:
    """The part of a core that an idle rank takes."""
    with _ranks(folder, 2, IDLE_S, nodes) as ranks:
        return max(float(process.communicate(timeout=LIMIT)[0].split()[-1]) for process in ranks)


def run() -> list[Figure]:
    if find_spec("torch") is None:
        raise RuntimeError("this bench needs torch, of which a build for CPUs is enough: uv pip install -p .venv --group torch")
    figures = []
    with scratch() as folder:
        for world in (2, 4):
            took = sorted(_parks(folder / str(world), world))
            name = f"{world} ranks on two nodes, from the request to the last one that is parked"
            figures.append(figure(BENCH, name, statistics.median(took) * 1e3, "ms", at_most=1000))
            figures.append(
                figure(BENCH, f"the same, nine of ten parks of {world} ranks", took[int(0.9 * len(took))] * 1e3, "ms")
            )
        with_thread, without = _idle(folder / "with", "a,b"), _idle(folder / "without", "a")
    figures.append(figure(BENCH, "the thread of an idle rank, of a core", (with_thread - without) * 100, "%", at_most=0.1))
    return figures
