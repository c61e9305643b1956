"""Jobs of Microsoft's Philly trace for all four papers combined: trials and best-effort jobs of several virtual clusters, each
of a kind that the authors of Gavel measured, with a configuration for each model of GPU on which its kind runs.

As in `gavel_kinds`, the trace's duration is that on the reference device, and `sharing` gives the rate of a job by its
placement. As in `gavel`, the user estimates the time in each configuration.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from pydantic import Field

from scheduler_service.core.model import Configuration, JobClass, JobSpec
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim.csv_rows import Skipped, rows
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import LONGEST_S
from scheduler_service.sim.sharing.measured import tables
from scheduler_service.sim.workloads.allox import add_error
from scheduler_service.sim.workloads.assuming import COMMAND, File, Trials
from scheduler_service.sim.workloads.gavel import DEVICES
from scheduler_service.sim.workloads.philly import COLUMNS


class GavelChoices(File):
    """Jobs of the Philly trace, of measured kinds, in configurations from which a policy chooses."""

    kind: Literal["gavel-choices"] = "gavel-choices"
    rates: Path = Field(description="the table of throughputs")
    measured_on: Literal["v100", "p100", "k80"] = Field(
        default="p100", description="the model of GPU on which the trace's durations are taken to have been: an assumption"
    )
    from_s: float = Field(default=0, ge=0, description="only jobs that were submitted at this time of the trace, or later")
    longest_s: float = Field(
        default=LONGEST_S, gt=0, le=LONGEST_S, description="a job that ran for longer counts as one that ran for so long"
    )
    vcs: int = Field(
        default=4, ge=1, description="only jobs of so many virtual clusters: those with the most jobs from then on"
    )
    trials: Trials = Trials(shorter_than_s=300)
    """The rule for trials, an assumption."""
    error: float = Field(default=0.1, ge=0, le=2, description="relative deviation of the estimates in each configuration")
    grace_s: float = Field(default=30, ge=0, le=LONGEST_S, description="an assumption")


def read(model: GavelChoices, folder: Path, seed: int, skipped: Skipped) -> Iterator[SimJob]:
    """Yield the trace's jobs with its times. The user is the virtual cluster. Raises BadTrace."""
    found, file = tables(folder / model.rates, None).alone, folder / model.file
    kinds: dict[int, list[tuple[str, dict[str, int]]]] = {}
    for (name, device, gpus, spread), rate in sorted(found.items()):
        if device == model.measured_on and not spread and rate:
            steps = {other: found.get((name, other, gpus, False), 0) for other in DEVICES}
            kinds.setdefault(gpus, []).append((name, {other: each for other, each in steps.items() if each}))
    rng, estimates, classes = Random(f"{seed}:kinds"), Random(f"{seed}:estimates"), Random(f"{seed}:classes")
    job_class, from_us, kept = model.trials.rule(classes), model.from_s * SECOND, tenants(file, model)
    for row in rows(file, COLUMNS):
        submit_us, gpus, vc = row.micros("submit_s"), row.amount("num_gpus"), row.text("vc")
        work_us = row.lasts("duration_s", min(max(row.micros("duration_s"), SECOND), round(model.longest_s * SECOND)))
        if submit_us < from_us:
            skipped[f"submitted before second {model.from_s:.0f}"] += 1
        elif vc not in kept:
            skipped["is not of one of the virtual clusters with the most jobs"] += 1
        elif not kinds.get(gpus):
            skipped["asks for a number of GPUs of which no rates were measured"] += 1
        else:
            kind, steps = rng.choice(kinds[gpus])
            times = [max(round(work_us * steps[model.measured_on] / rate), 1) for rate in steps.values()]
            demand = Vector(0, 0, gpus)
            first, *others = (
                Configuration(demand, cells=CellRequest(model=name), estimate_us=estimate)
                for name, estimate in zip(steps, add_error(tuple(times), model.error, estimates), strict=True)
            )
            spec = JobSpec(
                COMMAND,
                demand,
                job_class(row, work_us),
                round(model.grace_s * SECOND),
                cells=first.cells,
                estimate_us=first.estimate_us,
                alternatives=tuple(others),
                name=kind,
            )
            yield SimJob(spec, work_us, submit_us, vc, vc, kind=kind)


class Tenant(NamedTuple):
    """The sums of a virtual cluster's jobs."""

    jobs: int
    trials: int
    asked_s: float
    """GPU-seconds of its jobs."""


def tenants(file: Path, model: GavelChoices) -> dict[str, Tenant]:
    """The virtual clusters with the most jobs among the first `jobs` of the trace, in order. Raises BadTrace."""
    found: dict[str, Tenant] = {}
    count, is_trial = 0, model.trials.rule(Random(0))
    for row in rows(file, COLUMNS):
        if row.micros("submit_s") < model.from_s * SECOND or count == model.jobs:
            continue
        count += 1
        vc, work_us = row.text("vc"), min(row.micros("duration_s"), round(model.longest_s * SECOND))
        old = found.get(vc, Tenant(0, 0, 0.0))
        trial = is_trial(row, work_us) is JobClass.TRIAL
        found[vc] = Tenant(old.jobs + 1, old.trials + trial, old.asked_s + row.amount("num_gpus") * work_us / SECOND)
    largest = sorted(found, key=lambda vc: (-found[vc].jobs, vc))[: model.vcs]
    return {vc: found[vc] for vc in largest}
