"""The workloads of the Gandiva paper (OSDI 2018): jobs of known kinds, whose rates depend on their placement and neighbors.

The experiment of section 6.3 is drawn as the paper describes it. For the 9-day trace of section 6.4 the paper gives the number
of jobs and the mix of models. Durations follow a private trace. Here they are log-normal, and with the time in which jobs come
and the load they are fitted, so that first come, first served takes about as long as the paper's baseline (an average of 832
minutes and a makespan of 13,371). Nine days would not do: with Gandiva the paper's makespan is less than eight. The numbers of
GPUs are an assumption.
"""

import math
from collections.abc import Iterator, Mapping
from random import Random
from typing import Literal, TypeVar

from pydantic import Field

from scheduler_service.core.model import JobSpec, TaskGroup
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import LONGEST_S, MOST_JOBS
from scheduler_service.sim.sharing.kinds import TABLE_1, TABLE_2
from scheduler_service.sim.workloads.arriving import Recorded
from scheduler_service.sim.workloads.assuming import COMMAND
from scheduler_service.sim.workloads.distributions import Model

T = TypeVar("T")
MINUTE = 60 * SECOND
KINDS = tuple(TABLE_1)
"""Jobs 1 to 8 of Table 1."""
LOW, MID, HIGH = KINDS[:2], KINDS[2:5], KINDS[5:]
SHARES = (0.30, 0.25, 0.45)
"""Shares of jobs of low, middle and high utilization (section 6.3)."""
LARGE = KINDS[6:]
"""Kinds of jobs that need 2 or 4 GPUs."""
TRACE_SHARES = {"cv": 0.10, "nlp": 0.60, "speech": 0.30}
"""Shares of the domains (Table 2)."""
_CV, _NLP = 4, 8
TRACE_KINDS = {
    "cv": tuple(kind.name for kind in TABLE_2[:_CV]),
    "nlp": tuple(kind.name for kind in TABLE_2[_CV:_NLP]),
    "speech": tuple(kind.name for kind in TABLE_2[_NLP:]),
}
GROWS_TO = 4
"""The maximum GPUs of the elastic job: all GPUs of the server."""
TRACE_GPUS = {1: 0.70, 2: 0.15, 4: 0.15}
"""Shares of jobs by their GPUs, an assumption."""


class Gandivas(Model):
    """Settings that the paper's workloads share."""

    grace_s: float = Field(default=30, ge=0, le=LONGEST_S, description="an assumption")
    cpus_per_gpu: float = Field(default=0.5, ge=0, le=1e6, description="an assumption: servers have 12 CPUs for 4 GPUs")
    memory_gib_per_gpu: float = Field(default=2, ge=0, le=1e9, description="an assumption")

    @property
    def arrivals(self) -> Recorded:
        """Recorded arrivals, because the times are part of the draw."""
        return Recorded()

    def make_job(self, kind: str, gpus: int, work_us: Micros, submit_us: Micros, user: str = "user", name: str = "") -> SimJob:
        """Make a job, named after its kind unless it has a name."""
        demand = Vector(round(self.cpus_per_gpu * 1000 * gpus), round(self.memory_gib_per_gpu * 1024 * gpus), gpus)
        spec = JobSpec(COMMAND, demand, grace_us=round(self.grace_s * SECOND), name=name or kind)
        return SimJob(spec, max(work_us, 1), submit_us, user, kind=kind)


class Gandiva(Gandivas):
    """The jobs of section 6.3."""

    kind: Literal["gandiva"] = "gandiva"
    jobs: int = Field(default=1000, ge=1, le=MOST_JOBS)
    hours: float = Field(default=2, gt=0, le=1e5, description="in which the jobs come, each time as likely as any other")
    low_min: float = Field(default=30, gt=0, le=1e6, description="of GPU time in all, in minutes: the least")
    high_min: float = Field(default=45, gt=0, le=1e6, description="the most")


class GandivaTrace(Gandivas):
    """The synthesized 9-day trace of section 6.4."""

    kind: Literal["gandiva-trace"] = "gandiva-trace"
    jobs: int = Field(default=8800, ge=1, le=MOST_JOBS)
    days: float = Field(default=8.25, gt=0, le=1e4, description="in which the jobs come; fitted")
    gpus: int = Field(default=100, ge=1, description="of the cluster, for the load")
    load: float = Field(default=0.97, gt=0, le=100, description="GPU time of all jobs, by what the GPUs have; fitted")
    spread: float = Field(
        default=0.6, ge=0, le=5, description="of durations, which are log-normal: the deviation of the logarithm; fitted"
    )


class GandivaSlicing(Gandivas):
    """Figure 9: four long jobs, and later two short ones, all on one GPU each."""

    kind: Literal["gandiva-slicing"] = "gandiva-slicing"
    long_min: float = Field(default=100, gt=0, le=1e6, description="of the long jobs")
    short_min: float = Field(default=20, gt=0, le=1e6, description="of the short jobs")
    at_min: float = Field(default=25, ge=0, le=1e6, description="when the short jobs come")


class GandivaGrowing(Gandivas):
    """Figure 11: an elastic job of one GPU next to two short jobs, and two others that come after these have ended."""

    kind: Literal["gandiva-growing"] = "gandiva-growing"
    work_min: float = Field(default=225, gt=0, le=1e6, description="of the elastic job, with one GPU; an assumption")
    small_min: float = Field(default=25, gt=0, le=1e6, description="of the short job with one GPU")
    large_min: float = Field(default=45, gt=0, le=1e6, description="of the short job with two GPUs")
    large_at_min: float = Field(default=75, ge=0, le=1e6, description="when another job with two GPUs comes")
    small_at_min: float = Field(default=85, ge=0, le=1e6, description="when another job with one GPU comes; an assumption")
    later_min: float = Field(default=60, gt=0, le=1e6, description="of the jobs that come later; an assumption")


OfPaper = Gandiva | GandivaTrace | GandivaSlicing | GandivaGrowing


def jobs(model: OfPaper, seed: int) -> Iterator[SimJob]:
    """Yield the jobs in order of arrival."""
    if isinstance(model, Gandiva):
        return _experiment(model, seed)
    if isinstance(model, GandivaTrace):
        return _trace(model, seed)
    return _slicing(model) if isinstance(model, GandivaSlicing) else _growing(model)


def _experiment(model: Gandiva, seed: int) -> Iterator[SimJob]:
    rng = Random(f"{seed}:jobs")
    span = model.hours * 3600
    for at in sorted(rng.uniform(0, span) for _ in range(model.jobs)):
        (of,) = rng.choices((LOW, MID, HIGH), SHARES)
        kind = rng.choice(of)
        gpus = rng.choice((2, 4)) if kind in LARGE else 1
        gpu_time = rng.uniform(model.low_min, model.high_min) * MINUTE
        yield model.make_job(kind, gpus, round(gpu_time / gpus), round(at * SECOND))


def _trace(model: GandivaTrace, seed: int) -> Iterator[SimJob]:
    rng = Random(f"{seed}:jobs")
    span_us = round(model.days * 24 * 60 * MINUTE)
    times = sorted(rng.randrange(span_us) for _ in range(model.jobs))
    drawn = [(_one(rng, TRACE_GPUS), rng.lognormvariate(0, model.spread)) for _ in times]
    asked = math.fsum(gpus * lasts for gpus, lasts in drawn)
    unit = model.load * model.gpus * span_us / asked
    for at, (gpus, lasts) in zip(times, drawn, strict=True):
        category = _one(rng, TRACE_SHARES)
        yield model.make_job(rng.choice(TRACE_KINDS[category]), gpus, round(lasts * unit), at, category)


def _slicing(model: GandivaSlicing) -> Iterator[SimJob]:
    for minutes, at, count in ((model.long_min, 0.0, 4), (model.short_min, model.at_min, 2)):
        for _ in range(count):
            yield model.make_job("resnet-50-cifar", 1, round(minutes * MINUTE), round(at * MINUTE))


def _growing(model: GandivaGrowing) -> Iterator[SimJob]:
    kind = "resnet-50"
    grows = model.make_job(kind, 1, round(model.work_min * MINUTE), 0)
    tasks = (TaskGroup(1, grows.spec.demand),)
    yield grows._replace(spec=with_changes(grows.spec, gang=tasks, min_tasks=1, max_tasks=GROWS_TO))
    others = (
        (1, model.small_min, 0.0),
        (2, model.large_min, 0.0),
        (2, model.later_min, model.large_at_min),
        (1, model.later_min, model.small_at_min),
    )
    for gpus, minutes, at in sorted(others, key=lambda other: other[2]):
        yield model.make_job(kind, gpus, round(minutes * MINUTE), round(at * MINUTE))


def _one(rng: Random, shares: Mapping[T, float]) -> T:
    return rng.choices(tuple(shares), tuple(shares.values()))[0]
