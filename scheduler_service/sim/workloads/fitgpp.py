"""The FitGpp paper's workload (section 4.1), with what the paper does not give filled in by a fit."""

from collections.abc import Iterator
from random import Random

from scheduler_service.core.job import JobClass, JobSpec
from scheduler_service.core.topology import Device, Inventory
from scheduler_service.core.values import SECOND, Vector
from scheduler_service.sim.jobs import SimJob

MINUTE = 60 * SECOND


def normal(rng: Random, mean: float, deviation: float, low: float, high: float) -> float:
    """A normal variable, drawn again until it lies within the bounds."""
    while not low <= (value := rng.gauss(mean, deviation)) <= high:
        pass
    return value


def jobs(count: int, seed: int, trials: float = 0.3, grace: float = 1.0) -> Iterator[SimJob]:
    rng = Random(f"{seed}:jobs")
    for _ in range(count):
        trial = rng.random() < trials
        work = normal(rng, 5, 5, 1, 30) if trial else normal(rng, 30, 10, 1, 24 * 60)
        gp = normal(rng, 3 * grace, 1.1 * grace, 1e-9, 20 * grace)
        if trial:
            cpu, ram, gpu = normal(rng, 2, 4, 1, 32), normal(rng, 30, 40, 1, 256), normal(rng, 0.8, 2.3, 0, 8)
        else:
            cpu, ram, gpu = normal(rng, 1, 1, 1, 32), normal(rng, 30, 30, 1, 256), normal(rng, 0.5, 2.4, 0, 8)
        work_us = round(work * MINUTE)
        demand = Vector(1000 * round(cpu), 1024 * round(ram), round(gpu))
        job_class = JobClass.TRIAL if trial else JobClass.BEST_EFFORT
        yield SimJob(JobSpec(("train",), demand, job_class, round(gp * MINUTE), estimate_us=work_us), work_us)


def nodes(count: int = 84) -> tuple[Inventory, ...]:
    capacity = Vector(32_000, 256 << 10, 8)
    return tuple(Inventory(capacity, (), tuple(Device(d, f"{n}/{d}", "gpu", 16 << 10) for d in range(8))) for n in range(count))
