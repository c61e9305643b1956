"""Cost of counting steps: a step in the training process, the import, and the agent's reading of 64 runs.

All times are processor time, so that other programs have little effect. A step is one of a loop that does nothing else, so its
caches are warm. The hook for PyTorch's optimizers is measured as the difference that it makes to a step of an optimizer that
does nothing, in a process that loads the hook as a job does and checks for requests to park. The import is measured in
separate processes, which import nothing else first. The agent reads the files as it does on a node: from a spool with 64 live
runs of one process each, which have published a step since the last reading.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import ebb_inject
from benchmarks.figures import Figure, figure
from benchmarks.scratch import scratch
from client_sdk import training
from client_sdk.training import Steps
from ebb_inject.ebb_hook.step_file import read
from node_agent.measuring.step_watch import StepWatch
from node_agent.processes.process_groups import start_ticks
from node_agent.processes.run_paths import Paths
from node_agent.run_state.model import RunKey, RunPhase, RunRecord
from node_agent.runs.spool_opening import open_spool

BENCH = "hook"
ROOT = Path(__file__).parents[1]
STEPS = 100_000
ROUNDS = 7
RUNS = 64
READINGS = 200
IMPORTS = 15
HOOKED = """
import statistics, sys, time, torch
torch.set_num_threads(1)


class Nothing(torch.optim.Optimizer):
    def __init__(self):
        super().__init__([torch.ones(1, requires_grad=True)], {})

    def step(self):
        pass


def measure(optimizer):
    step, begin = optimizer.step, time.thread_time()
    for _ in range(STEPS):
        step()
    return (time.thread_time() - begin) / STEPS


optimizer = Nothing()
from ebb_hook import optimizers
optimizer.step()
assert optimizers.hook._parking is not None
differences = []
for _ in range(ROUNDS):
    hooked = measure(optimizer)
    optimizers.hook._handle.remove()
    differences.append(hooked - measure(optimizer))
    optimizers.hook._handle = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(optimizers.hook.note_step)
print(statistics.median(differences))
"""
IMPORT = "import time; begin = time.process_time(); {}; print(time.process_time() - begin)"


def run() -> list[Figure]:
    with scratch() as folder:
        published = _step(Steps(str(folder / "steps")))
        uncounted = _step(Steps(None))
        loop = _loop(folder / "loop")
        reading = _reading(folder)
        hooked = _hooked(folder)
    imported, used = _import("import client_sdk.training"), _import("from client_sdk.training import job")
    return [
        figure(BENCH, "a step, published", published * 1e6, "us", at_most=2),
        figure(BENCH, "a step of a loop over count(), published", loop * 1e6, "us", at_most=2),
        figure(BENCH, "a step counted by the hook for PyTorch", hooked * 1e6, "us", at_most=2),
        figure(BENCH, "a step outside of Ebb", uncounted * 1e6, "us"),
        figure(BENCH, "import of client_sdk.training", imported * 1e3, "ms", at_most=30),
        figure(BENCH, "import of client_sdk.training, with job", used * 1e3, "ms"),
        figure(BENCH, f"the agent reads {RUNS} runs", reading * 1e3, "ms"),
        figure(BENCH, "the same once a second, of a core", reading * 100, "%", at_most=0.5),
    ]


def _median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(ROUNDS))


def _step(counter: Steps) -> float:
    counter.advance()

    def measure() -> float:
        advance, begin = counter.advance, time.thread_time()
        for _ in range(STEPS):
            advance()
        counted = time.thread_time() - begin
        begin = time.thread_time()
        for _ in range(STEPS):
            pass
        return (counted - (time.thread_time() - begin)) / STEPS

    return _median(measure)


def _loop(file: Path) -> float:
    """Measure the time that count() adds to a loop."""
    os.environ["EBB_STEPS_FILE"] = str(file)

    def measure() -> float:
        begin = time.thread_time()
        for _ in training.count(range(STEPS)):
            pass
        counted = time.thread_time() - begin
        begin = time.thread_time()
        for _ in range(STEPS):
            pass
        return (counted - (time.thread_time() - begin)) / STEPS

    found = _median(measure)
    if not file.exists():
        raise RuntimeError(f"{file} was not written: the loop published nothing")
    return found


def _hooked(folder: Path) -> float:
    """Measure the time that the hook adds to a step of a PyTorch optimizer."""
    if find_spec("torch") is None:
        raise RuntimeError("this bench needs torch, of which a build for CPUs is enough: uv pip install -p .venv --group torch")
    environment = os.environ | {
        "PYTHONPATH": ebb_inject.FOLDER,
        "EBB_STEPS_FILE": str(folder / "hooked"),
        "EBB_PARK_DIR": str(folder / "park"),
    }
    code = HOOKED.replace("STEPS", str(STEPS)).replace("ROUNDS", str(ROUNDS))
    command = [sys.executable, "-c", code]
    found = float(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)
    record = read((folder / "hooked").read_bytes())
    if record is None or record.counted != STEPS * ROUNDS:
        raise RuntimeError(f"{folder / 'hooked'} does not hold {STEPS * ROUNDS} steps: {record}")
    return found


def _reading(folder: Path) -> float:
    """Seconds of one reading of all runs."""
    spool = open_spool(folder / "spool.db")
    try:
        paths = Paths(folder, folder / "checkpoints", spool.short_id)
        keys = [RunKey(job_id, 1) for job_id in range(1, RUNS + 1)]
        began = start_ticks(os.getpid())  # this process is that of every run
        spool.remember([RunRecord(key, RunPhase.RUNNING, pid=os.getpid(), start_ticks=began) for key in keys])
        counters = []
        for key in keys:
            Path(paths.steps(key)).parent.mkdir(parents=True)
            counters.append(Steps(paths.steps(key)))
        watch, times = StepWatch(spool, paths), []
        for _ in range(READINGS):
            for counter in counters:
                counter.advance()
            begin = time.thread_time()
            watch.read_files()
            times.append(time.thread_time() - begin)
        if len(watch.measurements) != RUNS or any(seen.step != READINGS for seen in watch.latest):
            raise RuntimeError(f"{len(watch.latest)} of {RUNS} runs were read, at steps {[seen.step for seen in watch.latest]}")
        return statistics.median(times)
    finally:
        spool.close()


def _import(statement: str) -> float:
    """Seconds of processor time, with compiled files: the median of several processes."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IMPORT.format(statement)]
    times = [
        float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        for _ in range(IMPORTS + 1)
    ]
    return statistics.median(times[1:])
