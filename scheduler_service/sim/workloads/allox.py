"""The AlloX paper's workloads: TensorFlow jobs that run on a GPU or on a CPU (EuroSys 2020, sections 5.1 and 5.2).

Given in the paper: the clusters, the numbers of users and jobs, the range of speedups in the experiment, the errors of the
estimates and the cost of profiling. The simulation's times and arrivals are drawn from distributions that were fitted to the
data that the authors published with the paper. The experiment's times are assumed, and their scale is fitted to the completion
time under DRFF.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Literal, NamedTuple

from pydantic import Field

from scheduler_service.core.model import Configuration, JobSpec
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import MOST_JOBS
from scheduler_service.sim.workloads.arriving import Recorded
from scheduler_service.sim.workloads.distributions import Model

ON_GPU = Vector(1000, 2 << 10, 1)
"""A GPU and a core, which every job on a GPU needs (section 4.4)."""
ON_CPU = Vector(19_000, 12 << 10, 0)
"""19 threads; one core is left for other services (section 5.1). The memory is that of the example in the introduction."""
LEAST_S = 1.0
LEAST_ESTIMATE = 0.05
"""The least estimate, relative to the true time."""


class Speedup(NamedTuple):
    """The parameters of a user's speedups, whose logarithms are normal."""

    mu: float
    sigma: float


SPEEDUPS = tuple(
    Speedup(*of)
    for of in (
        *((0.49, 0.45), (0.67, 0.51), (0.92, 0.56), (1.34, 0.70), (1.37, 0.65)),
        *((1.63, 0.81), (1.88, 0.77), (1.97, 0.83), (2.16, 0.88), (2.70, 0.74)),
    )
)
"""The users of the simulation."""
SPAN_S = 22_520
"""Seconds in which its jobs arrive."""
GAP_S, GAP_VARIATION = 4.45, 2.1
"""Gaps between batches, which are lognormal: the mean, and the deviation relative to it."""
SINGLE, LARGEST_BATCH, BATCH_EXPONENT = 0.6, 48, 2.7
"""Sizes of batches: the share with one job; and the largest size n and the exponent of the others, whose chance is proportional
to n to the power of minus the exponent, so that their mean is 2."""


class Estimates(Model):
    """The knowledge of AlloX's users about their jobs."""

    error: float = Field(default=0.1, ge=0, le=2, description="relative deviation of the estimates in each configuration")
    profiling: float = Field(default=0.03, ge=0, le=2, description="how much longer jobs run for being profiled, as a part")
    samples: bool = Field(
        default=False,
        description="jobs come without estimates and count their steps, so that the policy allox samples them; `error` is then "
        "that of the samples, and `profiling` does not count",
    )

    @property
    def arrivals(self) -> Recorded:
        return Recorded()


class Simulated(Estimates):
    """Settings that the simulation's workloads share."""

    until_s: float = Field(default=SPAN_S, gt=0, le=1e7, description="jobs come until then")
    rate: float = Field(default=1, ge=0.01, le=100, description="how many times as many jobs arrive as in the paper")
    jobs: int | None = Field(default=None, ge=1, le=MOST_JOBS, description="so many at most; none: all that come")


class Allox(Simulated):
    """The jobs of the paper's simulation: ten users, about 1,000 jobs each."""

    kind: Literal["allox"] = "allox"


class AlloxLongJobs(Simulated):
    """The same, but the last user's jobs take much longer: an extreme case (section 5.2.3), not detailed in the paper."""

    kind: Literal["allox_long_jobs"] = "allox_long_jobs"
    factor: float = Field(default=5, ge=0.01, le=1000, description="how much longer these jobs take")


class AlloxExperiment(Estimates):
    """The jobs of the paper's experiment on a cluster: four users with ten jobs each, which all arrive at time 0."""

    kind: Literal["allox_experiment"] = "allox_experiment"


def jobs(model: Simulated, seed: int) -> Iterator[SimJob]:
    """Yield the simulation's jobs in order of arrival."""
    factor = model.factor if isinstance(model, AlloxLongJobs) else 1.0
    rng, estimates = Random(f"{seed}:jobs"), Random(f"{seed}:estimates")
    for number, at in enumerate(_arrivals(Random(f"{seed}:arrivals"), model.until_s, GAP_S / model.rate)):
        if number == model.jobs:
            return
        user = rng.randrange(len(SPEEDUPS))
        on_cpu = max(rng.gauss(80 + 30 * user, 20), LEAST_S)
        on_gpu = max(on_cpu / rng.lognormvariate(*SPEEDUPS[user]), LEAST_S)
        longer = factor if user == len(SPEEDUPS) - 1 else 1.0
        times = longer * on_gpu, longer * on_cpu
        yield interchangeable(times, model, estimates, f"user-{user}", round(at * SECOND))


def experiment(model: AlloxExperiment, seed: int) -> Iterator[SimJob]:
    """Yield jobs with GPU times from 350 to 1,050 s, and log-uniform speedups from 1.8 to 10."""
    rng, estimates = Random(f"{seed}:jobs"), Random(f"{seed}:estimates")
    for number in range(40):
        on_gpu = rng.uniform(350, 1050)
        on_cpu = on_gpu * math.exp(rng.uniform(math.log(1.8), math.log(10)))
        yield interchangeable((on_gpu, on_cpu), model, estimates, f"user-{number % 4}", 0)


def interchangeable(times_s: tuple[float, float], model: Estimates, rng: Random, user: str, submit_us: Micros) -> SimJob:
    """A job with these times on a GPU and on a CPU; profiling is added to both, or is left to samples."""
    if model.samples:
        return _sampled_job(tuple(max(round(time * SECOND), 1) for time in times_s), model.error, rng, user, submit_us)
    times = tuple(max(round(time * (1 + model.profiling) * SECOND), 1) for time in times_s)
    on_gpu, on_cpu = add_error(times, model.error, rng)
    spec = JobSpec(("train",), ON_GPU, estimate_us=on_gpu, alternatives=(Configuration(ON_CPU, estimate_us=on_cpu),))
    return SimJob(spec, times[0], submit_us, user, times_us=times)


def _sampled_job(times: tuple[Micros, ...], error: float, rng: Random, user: str, submit_us: Micros) -> SimJob:
    """A job of unknown run time. A sample saves its work within a second when it is stopped."""
    spec = JobSpec(("train",), ON_GPU, grace_us=SECOND, alternatives=(Configuration(ON_CPU),))
    return SimJob(spec, times[0], submit_us, user, times_us=times, samples_us=tuple(add_error(times, error, rng)))


def add_error(times: Sequence[Micros], error: float, rng: Random) -> list[Micros]:
    """Add a normal error to each time. The draws do not depend on the deviation."""
    return [max(round(time * max(1 + error * rng.gauss(0, 1), LEAST_ESTIMATE)), 1) for time in times]


def _arrivals(rng: Random, until_s: float, gap_s: float) -> Iterator[float]:
    """Yield arrival times. `gap_s`: the mean time between batches."""
    spread = math.log(1 + GAP_VARIATION**2)
    mu = math.log(gap_s) - spread / 2
    sums = list(accumulate(size**-BATCH_EXPONENT for size in range(2, LARGEST_BATCH + 1)))
    at = 0.0
    while at < until_s:
        size = 1 if rng.random() < SINGLE else rng.choices(range(2, LARGEST_BATCH + 1), cum_weights=sums)[0]
        for _ in range(size):
            yield at
        at += rng.lognormvariate(mu, math.sqrt(spread))
