"""Cost of parking and resuming a PyTorch program, compared with the time of copying the same bytes twice.

500 MB of tensors, of 1 to 32 MB each, are moved to the arena and back, in a separate process. The target relates the whole
pair to two copies of the same bytes. The first goes to memory that exists, as the arena does after the first park or after
`PREPARE`. The second goes to new tensors (`clone`), since the system must provide released memory again. Times are processor
time, on which other programs have little effect, and medians. The phases are wall-clock times.

CPU tensors take the place of a GPU's, which `make bench-gpu` measures.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import ebb_inject
from benchmarks.figures import Figure, figure

BENCH = "park_cpu"
PROGRAM = """
import gc, json, statistics, time, torch
from ebb_hook.arena import Arena
from ebb_hook.tensor_offload import Mover

torch.set_num_threads(1)
sizes = [1, 2, 4, 8, 16, 32, 32, 30] * 4  # MB
tensors = [torch.ones(size * 250_000) for size in sizes]
mover = Mover(torch, ("cpu",))
places = Arena(torch, pinned=False).places([tensor.nbytes for tensor in tensors])  # which is not moved: it is not torch's own


def copied():
    begin = time.process_time()
    for tensor, place in zip(tensors, places):
        place.bytes.copy_(tensor.view(torch.uint8))
    copies = [tensor.clone() for tensor in tensors]
    took = time.process_time() - begin
    del copies
    return took


def parked():
    begin = time.process_time()
    moved = mover.move_out()
    mid = time.process_time()
    back = mover.move_back(moved)
    return time.process_time() - begin, moved.seconds["find"], moved.seconds["copy"], moved.seconds["release"], back["fill"]


mover.move_back(mover.move_out())
rounds = [(copied(), *parked()) for _ in range(9)]
assert all(tensor.min() == tensor.max() == 1 for tensor in tensors)
objects = len(gc.get_objects())
print(json.dumps([sum(sizes), objects, statistics.median(pair / copy for copy, pair, *_ in rounds),
                  *(statistics.median(column) for column in zip(*rounds))]))
"""


def run() -> list[Figure]:
    if find_spec("torch") is None:
        raise RuntimeError("this bench needs torch, of which a build for CPUs is enough: uv pip install -p .venv --group torch")
    environment = os.environ | {"PYTHONPATH": ebb_inject.FOLDER, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    size, objects, ratio, copied, pair, find, copy, release, fill = json.loads(done.stdout)
    return [
        figure(BENCH, f"park and resume {size} MB, by the time of two copies", ratio, "x", at_most=1.5),
        figure(BENCH, "two copies", copied * 1e3, "ms"),
        figure(BENCH, "park and resume", pair * 1e3, "ms"),
        figure(BENCH, f"of it: finding the tensors among {objects} objects", find * 1e3, "ms"),
        figure(BENCH, "of it: copying to the arena", copy * 1e3, "ms"),
        figure(BENCH, "of it: releasing the memory", release * 1e3, "ms"),
        figure(BENCH, "of it: taking memory again and copying back", fill * 1e3, "ms"),
    ]
