"""The FitGpp paper's workload (section 4.1), with missing details filled in by a fit.

Given in the paper: the shares, the means and upper cuts of the execution times and of grace periods, the load, the cluster.
Fitted, so that FIFO's figures match the paper's: every deviation, the lower cuts, all distributions of demands, and that
the load is the mean over the three resources.
"""

from collections.abc import Iterator
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from scheduler_service.core.model import JobClass, JobSpec
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Vector
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import MOST_JOBS, Rate, range_validator
from scheduler_service.sim.workloads.arriving import Closed, PolicyName
from scheduler_service.sim.workloads.distributions import Model

MINUTE = 60 * SECOND


class FitGpp(Model):
    """The paper's synthetic jobs, in a closed loop."""

    kind: Literal["fitgpp"] = "fitgpp"
    jobs: int = Field(default=2**16, ge=1, le=MOST_JOBS)
    trials: float = Field(default=0.3, ge=0, le=1, description="share of the jobs that are trials")
    grace: Annotated[float, range_validator(1e-6, 1e6)] = Field(
        default=1.0, description="times the paper's grace periods (figure 7)"
    )
    load: Rate = Field(default=2.0, description="the next job comes whenever the load is below this")
    times_from: PolicyName | None = Field(
        default="fifo", description="the policy whose submit times all others are given; none: each its own"
    )

    @property
    def arrivals(self) -> Closed:
        return Closed(load=self.load, times_from=self.times_from)


def normal(rng: Random, mean: float, deviation: float, low: float, high: float) -> float:
    """A normal variable, drawn again until it lies within the bounds."""
    gauss = rng.gauss
    while not low <= (value := gauss(mean, deviation)) <= high:
        pass
    return value


def draw_whole(rng: Random, mean: float, deviation: float, low: int, high: int) -> int:
    """A normal variable that is rounded, and then drawn again until it is within the bounds. In the opposite order fewer jobs
    would ask for nothing (13 % of trials for no GPU, not 23 %), and FIFO's slowdowns would be 5 % larger than the paper's."""
    gauss = rng.gauss
    while not low <= (value := round(gauss(mean, deviation))) <= high:
        pass
    return value


def jobs(count: int, seed: int, trials: float = 0.3, grace: float = 1.0) -> Iterator[SimJob]:
    rng = Random(f"{seed}:jobs")
    like = JobSpec(("train",), Vector())
    for _ in range(count):
        trial = rng.random() < trials
        work = normal(rng, 5, 5, 1, 30) if trial else normal(rng, 30, 10, 1, 24 * 60)
        gp = normal(rng, 3 * grace, 1.1 * grace, 1e-9, 20 * grace)
        if trial:
            cpu, ram, gpu = draw_whole(rng, 2, 4, 1, 32), draw_whole(rng, 30, 40, 1, 256), draw_whole(rng, 0.8, 2.3, 0, 8)
        else:
            cpu, ram, gpu = draw_whole(rng, 1, 1, 1, 32), draw_whole(rng, 30, 30, 1, 256), draw_whole(rng, 0.5, 2.4, 0, 8)
        work_us, grace_us = round(work * MINUTE), round(gp * MINUTE)
        demand = Vector(1000 * cpu, 1024 * ram, gpu)
        job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
        spec = with_changes(like, demand=demand, job_class=job_class, grace_us=grace_us, estimate_us=work_us)
        yield SimJob(spec, work_us)
