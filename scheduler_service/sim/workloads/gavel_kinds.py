"""Jobs of Microsoft's Philly trace, each of a kind that the authors of Gavel measured on real devices.

As in `gavel`, each job draws a kind among those that were measured with as many GPUs as the job has. Here a job may run on any
model of GPU, alone or next to another one, and `sharing` gives the rate (`sharing.measured`). The trace's duration is that
on the reference device.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

from pydantic import Field

from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim.csv_rows import Skipped, rows
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import LONGEST_S
from scheduler_service.sim.sharing.measured import tables
from scheduler_service.sim.workloads.assuming import COMMAND, File
from scheduler_service.sim.workloads.philly import COLUMNS


class GavelKinds(File):
    """Jobs of the Philly trace, of measured kinds."""

    kind: Literal["gavel-kinds"] = "gavel-kinds"
    rates: Path = Field(description="the table of throughputs")
    measured_on: str = Field(
        default="p100", description="the model of GPU on which the trace's durations are taken to have been"
    )
    from_s: float = Field(default=0, ge=0, description="only jobs that were submitted at this time of the trace, or later")
    grace_s: float = Field(default=30, ge=0, le=LONGEST_S, description="an assumption")
    cpus_per_gpu: float = Field(default=1, ge=0, le=1e6, description="an assumption")
    memory_gib_per_gpu: float = Field(default=8, ge=0, le=1e9, description="an assumption")


def read(model: GavelKinds, file: Path, folder: Path, seed: int, skipped: Skipped) -> Iterator[SimJob]:
    """Yield the trace's jobs with its times. The user is the virtual cluster. Raises BadTrace."""
    found = tables(folder / model.rates, None).alone
    kinds: dict[int, list[str]] = {}
    for (name, device, gpus, spread), rate in sorted(found.items()):
        if device == model.measured_on and not spread and rate:
            kinds.setdefault(gpus, []).append(name)
    rng, from_us, grace_us = Random(f"{seed}:kinds"), model.from_s * SECOND, round(model.grace_s * SECOND)
    cpu, memory = model.cpus_per_gpu * 1000, model.memory_gib_per_gpu * 1024
    for row in rows(file, COLUMNS):
        submit_us, gpus, vc = row.micros("submit_s"), row.amount("num_gpus"), row.text("vc")
        work_us = row.lasts("duration_s", max(row.micros("duration_s"), SECOND))
        if submit_us < from_us:
            skipped[f"submitted before second {model.from_s:.0f}"] += 1
        elif not kinds.get(gpus):
            skipped["asks for a number of GPUs of which no rates were measured"] += 1
        else:
            kind = rng.choice(kinds[gpus])
            demand = Vector(round(cpu * gpus), round(memory * gpus), gpus)
            spec = JobSpec(COMMAND, demand, grace_us=grace_us, name=kind)
            yield SimJob(spec, work_us, submit_us, vc, vc, kind=kind)
