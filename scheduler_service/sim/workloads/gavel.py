"""Jobs of Microsoft's Philly trace that run on several models of GPU, at rates that were measured on real ones.

Two files: the trace (see `philly`), and a table of training throughputs with the columns `device`, `placement`, `model`,
`batch_size`, `gpus` and `steps_per_s`, as the authors of Gavel measured them (Narayanan et al., OSDI 2020). Each job of the
trace draws a kind (a model and a batch size) among those that were measured with as many GPUs as the job has. The trace's
duration is taken as that on one model of GPU, and the durations on the others follow from the rates. A kind that does not fit
into the memory of a GPU does not run there.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Literal

from pydantic import Field

from scheduler_service.core.model import Configuration, JobSpec
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim.csv_rows import Skipped, rows
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads.allox import add_error
from scheduler_service.sim.workloads.assuming import COMMAND, File
from scheduler_service.sim.workloads.philly import COLUMNS

DEVICES = ("v100", "p100", "k80")
"""Device models in the order of the jobs' configurations."""
RATE_COLUMNS = ("device", "placement", "model", "batch_size", "gpus", "steps_per_s")
MILLIONTHS = 1_000_000

Rates = Mapping[int, Sequence[tuple[float, ...]]]
"""For each number of GPUs of a job, the steps per second of each kind on each device; 0 if it does not run there."""


class Gavel(File):
    """Jobs of the Philly trace with a configuration for each model of GPU."""

    kind: Literal["gavel"] = "gavel"
    rates: Path = Field(description="the table of throughputs")
    measured_on: Literal["v100", "p100", "k80"] = Field(
        default="p100", description="the model of GPU on which the trace's durations are taken to have been: an assumption"
    )
    from_s: float = Field(default=0, ge=0, description="only jobs that were submitted at this time of the trace, or later")
    error: float = Field(default=0.1, ge=0, le=2, description="relative deviation of the estimates in each configuration")


def read(model: Gavel, folder: Path, seed: int, skipped: Skipped) -> Iterator[SimJob]:
    """Yield the trace's jobs with its times. The user is the virtual cluster. Raises BadTrace."""
    kinds = rates_of(folder / model.rates)
    rng, estimates = Random(f"{seed}:kinds"), Random(f"{seed}:estimates")
    of, from_us = DEVICES.index(model.measured_on), model.from_s * SECOND
    possible = {gpus: [rates for rates in some if rates[of]] for gpus, some in kinds.items()}
    for row in rows(folder / model.file, COLUMNS):
        submit_us, gpus = row.micros("submit_s"), row.amount("num_gpus")
        work_us = row.lasts("duration_s", max(row.micros("duration_s"), SECOND))
        if submit_us < from_us:
            skipped[f"submitted before second {model.from_s:.0f}"] += 1
        elif not possible.get(gpus):
            skipped["asks for a number of GPUs of which no rates were measured"] += 1
        else:
            rates = rng.choice(possible[gpus])
            times = {name: max(round(work_us * rates[of] / rate), 1) for name, rate in zip(DEVICES, rates, strict=True) if rate}
            yield _job(times, gpus, add_error(tuple(times.values()), model.error, estimates), submit_us, row.text("vc"))


def _job(times: Mapping[str, int], gpus: int, estimates: Sequence[int], submit_us: int, vc: str) -> SimJob:
    demand = Vector(0, 0, gpus)
    first, *others = (
        Configuration(demand, cells=CellRequest(model=name), estimate_us=estimate)
        for name, estimate in zip(times, estimates, strict=True)
    )
    spec = JobSpec(COMMAND, demand, cells=first.cells, estimate_us=first.estimate_us, alternatives=tuple(others))
    all_times = tuple(times.values())
    return SimJob(spec, all_times[0], submit_us, vc, times_us=all_times)


@lru_cache(maxsize=8)
def rates_of(file: Path) -> Rates:
    """Rates for GPUs on as few servers as possible, of kinds measured on all devices. Raises BadTrace."""
    found: dict[tuple[int, str, str], dict[str, float]] = {}
    for row in rows(file, RATE_COLUMNS):
        if row.text("placement") == "consolidated" and row.text("device") in DEVICES:
            key = row.amount("gpus"), row.text("model"), row.text("batch_size")
            found.setdefault(key, {})[row.text("device")] = row.amount("steps_per_s", MILLIONTHS) / MILLIONTHS
    kinds: dict[int, list[tuple[float, ...]]] = {}
    for (gpus, _, _), by_device in sorted(found.items()):
        if len(by_device) == len(DEVICES):
            kinds.setdefault(gpus, []).append(tuple(by_device[name] for name in DEVICES))
    return kinds
