"""How long a job takes on each device, as far as a short measurement tells: what users would give as `--estimate`.

Each kind of work runs for a moment on both devices at once, since later both are busy at once, too. The time of a job is the
time that a process takes to come up, and that of its steps.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from examples.demo.allox.machine import Device, confined
from examples.demo.allox.work import WORK
from examples.demo.stage import Failed
from examples.demo.stopping import Stopping

PROGRAM = [sys.executable, str(Path(__file__).with_name("work.py"))]
"""How work.py is called."""
MEASURED = 0.5
"""Seconds of each measurement."""
SHORTEST, LONGEST = 1.2, 3.0
"""Seconds that a job takes on its faster device."""
JOBS_OF_EACH = {"matmul": 4, "inverse": 3, "sort": 3, "loop": 4}


@dataclass(frozen=True)
class Pace:
    """Speed of one kind of work on one device: seconds until the first step, and seconds per step."""

    start: float
    step: float

    def time(self, steps: int) -> float:
        return self.start + steps * self.step


@dataclass(frozen=True)
class Role:
    """A job before it is submitted. `estimates`: seconds by the name of the device."""

    name: str
    work: str
    steps: int
    estimates: Mapping[str, float]

    def command(self, result: Path) -> tuple[str, ...]:
        return (*PROGRAM, self.work, "--steps", str(self.steps), "--result", str(result))


Paces = Mapping[str, Mapping[str, Pace]]
"""Paces by kind of work, then by device."""


def measure(devices: Sequence[Device], folder: Path, stopping: Stopping) -> Paces:
    """Raises Failed if a measurement does."""
    _measure_at_once("loop", devices, folder, stopping)  # Python and NumPy have been read from the disk from now on
    return {work: _measure_at_once(work, devices, folder, stopping) for work in WORK}


def _measure_at_once(work: str, devices: Sequence[Device], folder: Path, stopping: Stopping) -> dict[str, Pace]:
    folder.mkdir(parents=True, exist_ok=True)
    began, processes = time.perf_counter(), {}
    took: dict[str, float] = {}
    try:
        for device in devices:
            processes[device.name] = _start(work, device, folder)
        while len(took) < len(devices):
            stopping.pause(0.005)
            for name, process in processes.items():
                if name not in took and process.poll() is not None:
                    took[name] = time.perf_counter() - began
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    return {name: _pace(folder / f"{work}-{name}", processes[name].returncode, took[name]) for name in took}


def _start(work: str, device: Device, folder: Path) -> "subprocess.Popen[bytes]":
    place = folder / f"{work}-{device.name}"
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    with place.with_suffix(".log").open("wb") as log, confined(device.cpus):
        return subprocess.Popen(
            [*PROGRAM, work, "--seconds", str(MEASURED), "--result", str(place.with_suffix(".json"))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment, **device.environment},
            start_new_session=True,  # Ctrl-C is for the demo, which then ends it
        )


def _pace(place: Path, status: int, took: float) -> Pace:
    if status:
        said = place.with_suffix(".log").read_text(errors="replace")[-1000:]
        raise Failed(f"the measurement {place.name} ended with status {status}:\n{said}")
    result = json.loads(place.with_suffix(".json").read_text())
    return Pace(max(took - result["seconds"], 0.0), result["seconds"] / result["steps"])


def drawn(paces: Paces, seed: int) -> list[Role]:
    """The jobs, in the order in which they are submitted. Their lengths and their order are drawn at random."""
    random = Random(seed)
    roles = [
        _role(f"{work}-{number}", work, random.uniform(SHORTEST, LONGEST), paces[work])
        for work, count in JOBS_OF_EACH.items()
        for number in range(1, count + 1)
    ]
    random.shuffle(roles)
    return roles


def _role(name: str, work: str, seconds: float, paces: Mapping[str, Pace]) -> Role:
    """A job that takes about so long on its faster device."""
    steps = max(1, *(round((seconds - pace.start) / pace.step) for pace in paces.values()))
    return Role(name, work, steps, {device: pace.time(steps) for device, pace in paces.items()})
