"""Microsoft's Philly trace (Jeon et al., USENIX ATC 2019), as a CSV file with a line for each job.

Columns: `submit_s`, `duration_s` (of all attempts together), `num_gpus` and `vc`; others may be there. The trace has no CPUs,
memory, classes and grace periods: these are assumptions, which the configuration names. It has no users either: the virtual
cluster is taken as the user.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal

from pydantic import Field

from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim.csv_rows import Skipped, rows
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import MOST_TASKS
from scheduler_service.sim.workloads.assuming import Trace, by_gpus, spec

COLUMNS = ("submit_s", "duration_s", "num_gpus", "vc")


class Philly(Trace):
    """Jobs of the Philly trace. A duration of 0 counts as a second."""

    kind: Literal["philly"] = "philly"
    from_s: float = Field(default=0, ge=0, description="only jobs that were submitted at this time of the trace, or later")
    vcs: int | None = Field(
        default=None, ge=1, description="only jobs of so many virtual clusters, those with the most jobs; none: of all"
    )
    gpus: tuple[int, ...] = Field(default=(), description="only jobs that ask for one of these numbers of GPUs; none: all jobs")
    cpus_per_gpu: float = Field(default=4, ge=0, le=1e6, description="an assumption: the cluster had CPUs enough")
    memory_gib_per_gpu: float = Field(default=32, ge=0, le=1e9, description="an assumption")
    gang_of: int | None = Field(
        default=8, ge=1, description="GPUs of a node: a job of more is a gang; none: of one task, however many"
    )


def read(model: Philly, file: Path, seed: int, skipped: Skipped) -> Iterator[SimJob]:
    """Yield the file's jobs with its times. Raises BadTrace."""
    rng = Random(f"{seed}:assumed")
    job_class = model.trials.rule(rng)
    cpu_milli, memory_mib = model.cpus_per_gpu * 1000, model.memory_gib_per_gpu * 1024

    def per_gpu(gpus: int) -> Vector:
        return Vector(round(cpu_milli * gpus), round(memory_mib * gpus), gpus)

    kept = None if model.vcs is None else _largest(file, model.vcs)
    asked = cache(lambda gpus: by_gpus(gpus, model.gang_of, per_gpu))
    from_us, wanted, grace_s, told = model.from_s * SECOND, model.gpus, model.grace_s.draw, model.estimates == "right"

    for row in rows(file, COLUMNS):
        submit_us, gpus, vc = row.micros("submit_s"), row.amount("num_gpus"), row.text("vc")
        work_us = row.lasts("duration_s", max(row.micros("duration_s"), SECOND))
        if submit_us < from_us:
            skipped[f"submitted before second {model.from_s:.0f}"] += 1
        elif kept is not None and vc not in kept:
            skipped["is not of one of the virtual clusters with the most jobs"] += 1
        elif wanted and gpus not in wanted:
            skipped["asks for another number of GPUs than those that are kept"] += 1
        elif model.gang_of is not None and gpus > model.gang_of * MOST_TASKS:
            raise row.bad("num_gpus", f"makes a gang of more than {MOST_TASKS} tasks, and is {row.text('num_gpus')}")
        else:
            demand, gang = asked(gpus)
            grace_us, estimate_us = round(grace_s(rng) * SECOND), work_us if told else 0
            yield SimJob(spec(demand, job_class(row, work_us), grace_us, gang, estimate_us), work_us, submit_us, vc, vc)


def _largest(file: Path, count: int) -> frozenset[str]:
    jobs = Counter(row.text("vc") for row in rows(file, COLUMNS))
    return frozenset(sorted(jobs, key=lambda vc: (-jobs[vc], vc))[:count])
