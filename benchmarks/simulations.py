"""A simulation in a process of its own: what it takes of a core, and of memory at its peak.

Counted is all that a user waits for once Python has started: reading or drawing the jobs, the simulation, the tables and the
summary of its results. `python -m benchmarks.simulations` runs the one that its standard input describes.
"""

import json
import subprocess
import sys
from array import array
from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

from scheduler_service.core.model.values import SECOND
from scheduler_service.sim.experiments.cases import Case, simulate


class Took(NamedTuple):
    """Cost and results of a simulation; times are in seconds."""

    seconds: float
    """Processor time."""
    peak_mib: float
    """The maximum resident memory."""
    jobs: int
    events: int
    """Submits, and starts and ends of runs."""
    completion: float
    """The average time from submit to end."""
    wait: float
    """On average."""
    makespan: float


def apart(case: Case, times: Path | None = None, record: Path | None = None) -> Took:
    """Simulates the case, at the submit times in the file `times`, or writing its own to `record`."""
    asked = {"case": case.model_dump(mode="json"), "times": times and str(times), "record": record and str(record)}
    command = [sys.executable, "-m", "benchmarks.simulations"]
    done = subprocess.run(command, input=json.dumps(asked), stdout=subprocess.PIPE, check=True, text=True)
    return Took(**json.loads(done.stdout))


def _here(asked: Mapping[str, Any]) -> Took:
    case = Case.model_validate(asked["case"])
    times = array("q", Path(asked["times"]).read_bytes()) if asked["times"] else None
    before = process_time()
    outcome = simulate(case, times)
    seconds = process_time() - before
    if asked["record"]:
        Path(asked["record"]).write_bytes(array("q", outcome.times_us()).tobytes())
    jobs = outcome.jobs
    submits, ends, waits = (jobs[name].to_numpy() for name in ("submit_us", "end_us", "wait_us"))
    return Took(
        seconds=seconds,
        peak_mib=_peak_mib(),
        jobs=len(jobs),
        events=len(jobs) + 2 * len(outcome.runs),
        completion=float((ends - submits).sum()) / len(jobs) / SECOND,
        wait=float(waits.sum()) / len(jobs) / SECOND,
        makespan=float(ends.max() - submits.min()) / SECOND,
    )


def _peak_mib() -> float:
    """Return the peak memory of this program alone; that of `getrusage` may be of the program that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(_here(json.load(sys.stdin))._asdict()))
