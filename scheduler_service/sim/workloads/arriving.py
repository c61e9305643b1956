"""Arrival times of jobs: from a trace, from a random process, or whenever the load is below a target.

A `load` is the demand times its duration, relative to the capacity over the whole time: the mean over the resources that the
cluster has, as in `sim.jobs.Load`. To reach one a process has to know the cluster's capacity.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.policies import registry
from scheduler_service.sim.csv_rows import Skipped
from scheduler_service.sim.jobs import Arrivals, ClosedLoop, Load, SimJob
from scheduler_service.sim.limits import Rate
from scheduler_service.sim.workloads.distributions import Amount, Distribution, Model

HOUR_S = 3600
OFFICE_HOURS = (*[0.4] * 7, 0.6, 0.9, 1.3, 1.6, 1.7, 1.5, 1.5, 1.7, 1.8, 1.7, 1.5, 1.2, 1.0, 0.9, 0.8, 0.6, 0.5)
OFFICE_DAYS = (1.15, 1.2, 1.2, 1.2, 1.1, 0.6, 0.55)


def _is_policy(name: str) -> str:
    if name not in (known := registry.for_simulations()):
        raise registry.unknown(name, known)
    if name in ("cells", "quota"):
        raise ValueError(f"the policy {name} is for virtual clusters, and times are recorded without any: take another one")
    return name


PolicyName = Annotated[str, AfterValidator(_is_policy)]


NEVER_CAME = "never came: the load did not fall below its target any more"


class NeedsCapacity(Exception):
    """Arrivals at a load depend on the cluster, and its capacity was not given."""


class Recorded(Model):
    """Arrivals as in the trace. With `speed` 2 they take half the time; `load` chooses the speed with this mean load from the
    first to the last."""

    kind: Literal["recorded"] = "recorded"
    speed: Rate = 1
    load: Rate | None = None

    @model_validator(mode="after")
    def _one(self) -> "Recorded":
        if self.load is not None and self.speed != 1:
            raise ValueError("give speed or load, not both")
        return self


class Closed(Model):
    """The next job comes whenever the load is below a target (FitGpp, section 4.1). `times_from` names a policy: all others
    replay the times at which jobs come under that one, so that all have the same."""

    kind: Literal["closed_loop"] = "closed_loop"
    load: Rate = 2.0
    times_from: PolicyName | None = None


class AtRate(Model):
    """The number of arrivals: the mean per hour, or as many as make a load."""

    per_hour: Rate | None = None
    load: Rate | None = None

    @model_validator(mode="after")
    def _one(self) -> "AtRate":
        if (self.per_hour is None) == (self.load is None):
            raise ValueError("give per_hour or load, one of them")
        return self


class Poisson(AtRate):
    """Each job arrives independently of all others."""

    kind: Literal["poisson"] = "poisson"


class Diurnal(AtRate):
    """Like `poisson`, with a rate that follows the hour of the day and the day of the week. The simulation begins on a Monday
    at midnight; factors are relative, and by default those of an office week, which is an assumption."""

    kind: Literal["diurnal"] = "diurnal"
    hours: tuple[float, ...] = Field(default=OFFICE_HOURS, min_length=24, max_length=24)
    days: tuple[float, ...] = Field(default=OFFICE_DAYS, min_length=7, max_length=7)

    @model_validator(mode="after")
    def _factors(self) -> "Diurnal":
        if min(*self.hours, *self.days) < 0 or max(self.hours) == 0 or max(self.days) == 0:
            raise ValueError("hours and days must not be negative, and one of each must be more than 0")
        if not all(factor == 0 or 1e-6 <= factor <= 1e6 for factor in (*self.hours, *self.days)):
            raise ValueError("hours and days: each must be 0, or from 1e-06 to 1e+06")
        if any(0 < factor * 1000 < max(factors) for factors in (self.hours, self.days) for factor in factors):
            raise ValueError("hours and days: each must be 0, or a thousandth of the greatest at least")
        return self


class Batches(Model):
    """Batches of jobs: `size` arrive together, and the next ones `gap_s` later."""

    kind: Literal["batches"] = "batches"
    gap_s: Amount
    size: Distribution


Generated = Annotated[Closed | Poisson | Diurnal | Batches, Field(discriminator="kind")]
Arriving = Annotated[Recorded | Closed | Poisson | Diurnal | Batches, Field(discriminator="kind")]

Jobs = Callable[[], Iterable[SimJob]]
"""Returns the jobs of a workload from the first one on: to reach a load, all must be seen beforehand."""


def with_arrival_times(jobs: Jobs, arriving: Arriving, seed: int, capacity: Vector | None) -> Iterator[SimJob]:
    """Yield the jobs in order of arrival, with their times; for a closed loop, whose times are not known, with 0."""
    if isinstance(arriving, Closed):
        yield from jobs()
    elif isinstance(arriving, Recorded):
        yield from _at_recorded_times(list(jobs()), arriving, capacity)
    else:
        for job, at in zip(jobs(), times_us(jobs, arriving, Random(f"{seed}:arrivals"), capacity), strict=False):
            yield job._replace(submit_us=at)


def _at_recorded_times(jobs: list[SimJob], arriving: Recorded, capacity: Vector | None) -> Iterator[SimJob]:
    first, last = (jobs[0].submit_us, jobs[-1].submit_us) if jobs else (0, 0)
    speed = arriving.speed
    if arriving.load is not None and first < last:
        hours = len(jobs) / per_hour_at(arriving.load, jobs, capacity)
        speed = (last - first) / (hours * HOUR_S * SECOND)
    for spec, work_us, submit_us, user, vc, times, samples, kind in jobs:  # `_replace` takes several times as long
        yield SimJob(spec, work_us, round((submit_us - first) / speed), user, vc, times, samples, kind)


def times_us(jobs: Jobs, arriving: Poisson | Diurnal | Batches, rng: Random, capacity: Vector | None) -> Iterator[Micros]:
    """The endless times of a random process."""
    if isinstance(arriving, Batches):
        yield from _batches(arriving, rng)
        return
    per_hour = arriving.per_hour
    if per_hour is None:
        assert arriving.load is not None  # one of them is set
        per_hour = per_hour_at(arriving.load, jobs(), capacity)
    yield from _poisson(per_hour, rng) if isinstance(arriving, Poisson) else _diurnal(arriving, per_hour, rng)


def per_hour_at(load: float, jobs: Iterable[SimJob], capacity: Vector | None) -> float:
    """The number of such jobs per hour for this mean load. Raises NeedsCapacity; ValueError if jobs ask for nothing."""
    if capacity is None:
        raise NeedsCapacity("arrivals at a load depend on the cluster, and its capacity was not given")
    count, asked = 0, [0, 0, 0]
    for job in jobs:
        count += 1
        for i, amount in enumerate(job.spec.demand):
            asked[i] += amount * job.work_us
    whole = Load(Vector(*asked), Vector(*(amount * HOUR_S * SECOND for amount in capacity))).mean()
    if not whole:
        raise ValueError("jobs that ask for nothing make no load, at whatever rate they come")
    return load * count / whole


def _poisson(per_hour: float, rng: Random) -> Iterator[Micros]:
    at, per_second = 0.0, per_hour / HOUR_S
    while True:
        at += rng.expovariate(per_second)
        yield round(at * SECOND)


def _diurnal(arriving: Diurnal, per_hour: float, rng: Random) -> Iterator[Micros]:
    """Draw by thinning: candidates arrive at the greatest rate of the week, and each is kept with its hour's probability. Hours
    with probability 0 are skipped, which does not change the distribution, because the process has no memory."""
    week = [day * hour for day in arriving.days for hour in arriving.hours]
    greatest, mean = max(week), sum(week) / len(week)
    at, per_second = 0.0, per_hour * greatest / mean / HOUR_S
    while True:
        at += rng.expovariate(per_second)
        hour = round(at * SECOND) // (HOUR_S * SECOND)
        chance = week[hour % len(week)]
        if not chance:
            at = float((hour + 1) * HOUR_S)
        elif rng.random() * greatest < chance:
            yield round(at * SECOND)


def _batches(arriving: Batches, rng: Random) -> Iterator[Micros]:
    at = 0.0
    while True:
        for _ in range(max(1, round(arriving.size.draw(rng)))):
            yield round(at * SECOND)
        at += arriving.gap_s.draw(rng)


class Timed:
    """Jobs in order of arrival, each taken when its time has come, so that a million need not be held in memory."""

    def __init__(self, jobs: Iterable[SimJob]) -> None:
        self._jobs = iter(jobs)
        self._next = next(self._jobs, None)

    def next_us(self, now: Micros, _load: Load) -> Micros | None:
        if (coming := self._next) is None:
            return None
        at = coming.submit_us
        return at if at > now else now

    def take(self, now: Micros, _load: Load) -> Sequence[SimJob]:
        coming = self._next
        if coming is None or coming.submit_us > now:  # nearly always
            return ()
        come: list[SimJob] = []
        while coming is not None and coming.submit_us <= now:
            come.append(coming)
            last_us, coming = coming.submit_us, next(self._jobs, None)
            if coming is not None and coming.submit_us < last_us:
                raise ValueError("jobs are not in the order in which they come")
        self._next = coming
        return come


def at_times(jobs: Iterable[SimJob], times_us: Sequence[int], skipped: Skipped) -> Iterator[SimJob]:
    """Yield the jobs with these times instead of their own. Further jobs never came when the times were recorded, and are
    skipped. Raises ValueError if there are fewer jobs than times."""
    given = 0
    for job in jobs:
        if given == len(times_us):
            skipped[NEVER_CAME] += 1
            continue
        spec, work_us, _, user, vc, times, samples, kind = job
        yield SimJob(spec, work_us, times_us[given], user, vc, times, samples, kind)
        given += 1
    if given < len(times_us):
        raise ValueError(f"there are {len(times_us)} recorded times, and {given} jobs")


def arrivals(jobs: Iterable[SimJob], arriving: Arriving) -> Arrivals:
    return ClosedLoop(jobs, arriving.load) if isinstance(arriving, Closed) else Timed(jobs)
