"""Assumptions about data that traces lack and a simulation needs; a configuration names them."""

from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Literal

from pydantic import Field, model_validator

from scheduler_service.core.model import JobClass, JobSpec, TaskGroup
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.sim.csv_rows import Row
from scheduler_service.sim.limits import MOST_JOBS
from scheduler_service.sim.workloads.arriving import Arriving, Recorded
from scheduler_service.sim.workloads.distributions import Amount, Model, Normal

COMMAND = ("job",)
"""The command of simulated jobs, which is never run."""


class Trials(Model):
    """The rule for trials in a trace: a random share of the jobs, the short ones, or those with certain values in a column."""

    share: float | None = Field(default=None, ge=0, le=1)
    shorter_than_s: float | None = Field(default=None, ge=0)
    column: str | None = None
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_rule(self) -> "Trials":
        if sum(rule is not None for rule in (self.share, self.shorter_than_s, self.column)) != 1:
            raise ValueError("give one rule: share, or shorter_than_s, or column with its values")
        if (self.column is not None) != bool(self.values):
            raise ValueError("column and values go together")
        return self

    def rule(self, rng: Random) -> Callable[[Row, Micros], JobClass]:
        """Return a function that gives the class of a row's job, by its run time."""
        share, shorter_us = self.share, None if self.shorter_than_s is None else self.shorter_than_s * SECOND
        trials, others = JobClass.TRIAL, JobClass.BEST_EFFORT

        def class_of(row: Row, work_us: Micros) -> JobClass:
            if share is not None:
                trial = rng.random() < share
            elif shorter_us is not None:
                trial = work_us < shorter_us
            else:
                assert self.column is not None  # one of the three is set
                if self.column not in row.values:
                    raise row.bad(self.column, "is not there, and is to say which jobs are trials")
                trial = row.values[self.column] in self.values
            return trials if trial else others

        return class_of


class File(Model):
    """Settings that all traces share."""

    file: Path = Field(description="from the folder of the configuration, if it is relative; packed if it ends with .gz")
    jobs: int | None = Field(default=None, ge=1, le=MOST_JOBS, description="only so many of them, the first ones")
    resample: bool = Field(default=False, description="draw `jobs` of them at random, each perhaps several times")
    arrivals: Arriving = Recorded()

    @model_validator(mode="after")
    def _resampled_come_otherwise(self) -> "File":
        if self.resample and (self.jobs is None or isinstance(self.arrivals, Recorded)):
            raise ValueError("resample needs jobs (how many), and arrivals of another kind than recorded")
        return self


SITE_GRACE_S = 30
"""The grace period of jobs without one: the default of a site, its setting `default_grace`."""


class Trace(File):
    """A trace without classes and grace periods."""

    trials: Trials = Trials(share=0.3)
    """The rule for trials, an assumption; the default is the FitGpp paper's share."""
    estimates: Literal["none", "right"] = Field(
        default="none", description="what users say of how long a job runs, which LRTP and backfilling go by"
    )
    grace_s: Amount = Normal(mean=180, deviation=66, low=1e-6, high=1200)
    """Grace periods, an assumption: by default the FitGpp paper's mean and cut, and the deviation fitted to its results."""


def spread(total: Vector, tasks: int) -> tuple[TaskGroup, ...]:
    """Split a total into tasks as evenly as whole amounts allow, with equal tasks in one group."""
    each = (Vector(*(whole // tasks + (rank < whole % tasks) for whole in total)) for rank in range(tasks))
    return tuple(TaskGroup(len(list(alike)), demand) for demand, alike in groupby(each))


def by_gpus(gpus: int, node: int | None, per_gpu: Callable[[int], Vector]) -> tuple[Vector, tuple[TaskGroup, ...]]:
    """The total demand of a job with this many GPUs, and its tasks: one, or as many whole nodes as it fills and one for the
    rest. `node`: the GPUs of a node; None: any number."""
    if node is None or gpus <= node:
        return per_gpu(gpus), ()
    whole, rest = divmod(gpus, node)
    groups = (TaskGroup(whole, per_gpu(node)), *([TaskGroup(1, per_gpu(rest))] if rest else []))
    total = Vector(*(sum(amounts) for amounts in zip(*(tuple(g.size * d for d in g.demand) for g in groups), strict=True)))
    return total, groups


@lru_cache(4096)
def spec(
    demand: Vector,
    job_class: JobClass,
    grace_us: Micros,
    gang: tuple[TaskGroup, ...] = (),
    estimate_us: Micros = 0,
    project: str = "",
) -> JobSpec:
    """Make a spec. Equal specs are often one object: a trace has few different ones if all have the same grace period."""
    return JobSpec(COMMAND, demand, job_class, grace_us, gang=gang, estimate_us=estimate_us, project=project)
