"""Six PyTorch programs on four devices in turns of ten seconds: what each of them gets, and what is lost by switching.

A real agent parks and resumes real programs. The rows of the share group are 1 2 3 4, 3 4 5 6 and 5 6 1 2, so each program is
in two rows of three, and should advance at 4/6 of its own rate. All members hold all four devices; four execute at a time.

A machine with fewer than four free cores cannot show four devices that compute. So the work of a device is a pause here: a step
is some 2 ms of a CPU and a pause of 20 ms, in which a GPU would compute. What a park itself takes (finding the tensors, copying
75 MB, signals) is the CPU's work, and is real. CPU tensors stand for those of a GPU.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ebb.agent.v1.agent_link_pb2 import SharePlan

from benchmarks.figures import Figure, figure
from benchmarks.scratch import scratch
from ebb_inject.ebb_hook.step_file import Record
from node_agent.processes.job_reports import read_record
from tests.agent.conftest import AgentProcess
from tests.agent.fake_scheduler import FakeScheduler, share_plan

T = TypeVar("T")

BENCH = "timeslice"
JOBS = range(1, 7)
ROWS = (1, 2, 3, 4), (3, 4, 5, 6), (5, 6, 1, 2)
SLOTS = 4
SLICE = 10.0
ALONE = 30.0
"""Seconds in which all programs execute, for their own rates."""
CYCLES = int(os.environ.get("EBB_BENCH_CYCLES", "6"))
LIMIT = 120.0
PROGRAM = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
kept = [torch.ones(1 << 20) for _ in range(16)]
x = torch.randn(4, 1000)
while True:
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
"""


def run() -> list[Figure]:
    with scratch() as folder:
        scheduler = FakeScheduler()
        (folder / "train.py").write_text(PROGRAM)
        agent = AgentProcess(folder / "state", scheduler.address, devices="pcie-8")
        try:
            scheduler.connected()
            return _measured(scheduler, folder)
        finally:
            for job in JOBS:
                scheduler.stop(job, 0)
            for job in JOBS:
                scheduler.exited(job, limit=LIMIT)
            agent.terminate()
            scheduler.close()


def _measured(scheduler: FakeScheduler, folder: Path) -> list[Figure]:
    def start(share: SharePlan | None = None) -> None:
        for job in JOBS:
            environment = {"EBB_PARK_DEVICES": "cpu", "OMP_NUM_THREADS": "1"}
            command = sys.executable, str(folder / "train.py")
            scheduler.start(job, *command, devices=tuple(range(SLOTS)), environment=environment, share=share)

    def records() -> dict[int, Record]:
        files = {job: next((folder / "state").glob(f"runs/*/{job}.1/steps"), None) for job in JOBS}
        found = {job: read_record(str(file), time.monotonic_ns()) for job, file in files.items() if file is not None}
        return {job: record for job, record in found.items() if record is not None}

    start()
    _until(lambda: len(records()) == len(JOBS) and min(record.counted for record in records().values()) > 50)
    own = _rates(records, ALONE)
    period = SLICE * len(ROWS)
    start(share_plan(*ROWS, period=period))
    _until(lambda: len(scheduler.slices()) == len(JOBS) and min(seen.switches for seen in scheduler.slices().values()) >= 2)
    time.sleep(period - time.time() % period + SLICE / 2)  # from the middle of a turn to that of the same turn
    rates = _rates(records, CYCLES * period)
    parts = {job: rates[job] / own[job] for job in JOBS}
    seen = scheduler.slices()
    took = [each.switching.ToTimedelta().total_seconds() / each.switches for each in seen.values()]
    worst = max(abs(part - SLOTS / len(JOBS)) for part in parts.values())
    lost = 1 - sum(parts.values()) / SLOTS
    return [
        figure(
            BENCH, "parts of the own rates of six programs on four devices: largest error", 100 * worst, "points", at_most=2
        ),
        figure(BENCH, f"lost by switching every {SLICE:g} s, of all four devices", 100 * lost, "%", at_most=2),
        *(figure(BENCH, f"  program {job}, of its own rate", 100 * part, "%") for job, part in parts.items()),
        figure(BENCH, "a park and a resume, mean", 1e3 * sum(took) / len(took), "ms"),
        figure(BENCH, "own rate of a program, mean", sum(own.values()) / len(own), "steps/s"),
    ]


def _rates(records: Callable[[], dict[int, Record]], seconds: float) -> dict[int, float]:
    """Steps a second of each program over this time."""
    before, began = records(), time.monotonic()
    time.sleep(seconds)
    after, took = records(), time.monotonic() - began
    return {job: (after[job].counted - before[job].counted) / took for job in JOBS}


def _until(what: Callable[[], T]) -> T:
    end = time.monotonic() + LIMIT
    while not (value := what()):
        if time.monotonic() > end:
            raise RuntimeError(f"did not come about within {LIMIT:g} s")
        time.sleep(0.05)
    return value
