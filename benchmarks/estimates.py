"""How far estimates from samples are off: forty real NumPy programs on two kinds of device (AlloX, section 4.1, Figure 10).

The devices are sets of CPUs: one CPU, and two. Each program is estimated on each of them from a sample of 3 % of its steps.
What is read, when, and what follows from it is decided by the functions of the service and of the agent. Then the program
runs whole, and its time counts from the start of its process to the exit. On one CPU the same is done with processor
time, in which other programs of the machine count little.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figure, figure, quantile
from benchmarks.numpy_jobs import JOBS
from benchmarks.scratch import scratch
from node_agent.measuring.step_measurements import RunMeasurement, measurement
from node_agent.processes.job_reports import read_record
from node_agent.processes.process_groups import start_ticks
from node_agent.run_state.model import RunKey
from scheduler_service.core.model.estimates import Reading, Sampling
from scheduler_service.core.operations.estimators import from_readings
from scheduler_service.core.operations.samples import is_enough, is_news

BENCH = "estimates"
SAMPLE = Sampling(30_000, 60_000_000)
WHOLE_S = (1.2, 2.5)
"""About how long programs run in all: some less, some more."""
BUDGET_S = 330.0
"""After that no further program is begun: a busy machine may take several times as long."""
MOST_STEPS = 20_000
LOOK_S = 0.002
LIMIT_S = 60.0


class Taken(NamedTuple):
    """Times of a program, in seconds: wall clock, and processor time of its main thread (None: it has several)."""

    clock: float
    processor: float | None


def run() -> list[Figure]:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    by_clock: list[float] = []
    by_processor: list[float] = []
    end = time.monotonic() + BUDGET_S
    with scratch() as folder:
        for number, name in enumerate(JOBS):
            if time.monotonic() > end:
                print(f"  {len(JOBS) - number} programs are left out: {BUDGET_S:g} s are over")
                break
            for among in dict.fromkeys((tuple(cpus[:1]), tuple(cpus))):
                total = _steps(name, among, WHOLE_S[0] + (WHOLE_S[1] - WHOLE_S[0]) * number / (len(JOBS) - 1))
                estimate = _sample(name, total, among, folder / f"{number}-{len(among)}")
                took = _whole(name, total, among)
                by_clock.append(100 * (estimate.clock / took.clock - 1))
                if estimate.processor is not None and took.processor:
                    by_processor.append(100 * (estimate.processor / took.processor - 1))
                print(f"  {name} on {len(among)} CPU: {estimate.clock:.2f} s, took {took.clock:.2f} s, {by_clock[-1]:+.0f} %")
    return [*_figures("by the clock", by_clock), *_figures("in processor time, on one CPU", by_processor)]


def _figures(what: str, errors: Sequence[float]) -> list[Figure]:
    off = [abs(error) for error in errors]
    return [
        figure(BENCH, f"{what}: mean absolute error of {len(errors)} (paper: 8)", statistics.mean(off), "%"),
        figure(BENCH, f"{what}: standard deviation of the error (paper: 11)", statistics.stdev(errors), "%"),
        figure(BENCH, f"{what}: mean error", statistics.mean(errors), "%"),
        *(figure(BENCH, f"{what}: absolute error, quantile {part:g}", quantile(off, part), "%") for part in (0.5, 0.8, 0.9)),
    ]


def _steps(name: str, cpus: Sequence[int], seconds: float) -> int:
    """How many steps take so long."""
    done = subprocess.run(_command(name, "time", cpus), env=_environment(cpus), capture_output=True, text=True, check=True)
    return min(max(round(seconds / float(done.stdout)), 20), MOST_STEPS)


def _sample(name: str, total: int, cpus: Sequence[int], file: Path) -> Taken:
    """In all, as the service would estimate from what the agent would read; and the same of processor time."""
    by_clock: list[Reading] = []
    by_processor: list[Reading] = []
    with _started(name, total, cpus, EBB_STEPS_FILE=str(file)) as process:
        for one, used in _measured(process, file):
            if not by_clock:
                by_clock.append(Reading(1, round(one.first * 1e6)))
                by_processor.append(Reading(one.steps, used))
            if is_news(SAMPLE, by_clock[-1].steps, one.steps, one.total):
                by_clock.append(Reading(one.steps, round(one.last * 1e6)))
                by_processor.append(Reading(one.steps, used))
            if is_enough(SAMPLE, one.steps, one.total):
                break
        process.kill()
    clock, processor = from_readings(by_clock, total), from_readings(by_processor, total)
    if clock is None:
        raise RuntimeError(f"{name} was not measured: {by_clock}")
    return Taken(clock.time / 1e6, processor.time / 1e6 if processor is not None and len(cpus) == 1 else None)


def _measured(process: "subprocess.Popen[bytes]", file: Path) -> Iterator[tuple[RunMeasurement, int]]:
    """With the processor time of the main thread, in microseconds."""
    ticks, end = start_ticks(process.pid), time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < end:
        record = read_record(str(file), time.monotonic_ns())
        if record is not None and (one := measurement(RunKey(1, 1), record, ticks, 0)) is not None:
            yield one, int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) // 1000
        time.sleep(LOOK_S)


def _whole(name: str, total: int, cpus: Sequence[int]) -> Taken:
    began = time.monotonic()
    process = _started(name, total, cpus)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{name} exited with {process.returncode}")
    return Taken(time.monotonic() - began, usage.ru_utime + usage.ru_stime)


def _started(name: str, total: int, cpus: Sequence[int], **environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(_command(name, str(total), cpus), env=_environment(cpus) | environment)


def _command(name: str, total: str, cpus: Sequence[int] = ()) -> list[str]:
    program = [sys.executable, "-m", "benchmarks.numpy_jobs", name, total]
    return ["taskset", "-c", ",".join(map(str, cpus)), *program] if cpus else program


def _environment(cpus: Sequence[int]) -> dict[str, str]:
    threads = str(len(cpus))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if name != "EBB_STEPS_FILE"} | dict.fromkeys(names, threads)
