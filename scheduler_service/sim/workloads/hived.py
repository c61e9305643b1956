"""The HiveD paper's workload (section 5.1): eleven tenants, their quotas (table 1), and jobs by their GPUs (table 2).

Arrival and run times are not in the paper: they are drawn from the shapes in `hived_fitted`, or from a file of the Philly
trace. Jobs ask for GPUs only. Each tenant's jobs are drawn separately, so that they do not depend on the others: a tenant can
have a private cluster.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import exp, pi, sin, sqrt
from pathlib import Path
from random import Random
from statistics import NormalDist
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from scheduler_service.core.model import JobClass, TaskGroup
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.sim.csv_rows import BadTrace, rows
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.limits import LONGEST_S, MOST_JOBS, Rate, range_validator
from scheduler_service.sim.workloads import hived_fitted as fitted
from scheduler_service.sim.workloads import philly
from scheduler_service.sim.workloads.arriving import Recorded
from scheduler_service.sim.workloads.assuming import by_gpus, spec
from scheduler_service.sim.workloads.distributions import Model
from scheduler_service.sim.workloads.hived_sample import of_models, sample_jobs

NODES, SPARE, NODE_GPUS = 279, 6, 8
"""The nodes of the paper's cluster, how many of them no tenant owns, and the GPUs of a node."""
JOBS = 141_950
DAYS = 62.0
"""The trace spans "more than two months"."""
SIZES = (1, 2, 4, 8, 16)
"""Table 2's columns; the last one is "16 or more"."""
DAY_S, HOUR_S = 86400, 3600


class Tenant(NamedTuple):
    nodes: int
    """The tenant's quota."""
    jobs: tuple[int, int, int, int, int]
    """Numbers of jobs by SIZES."""
    load: float
    """Demand of its jobs, relative to its quota. Fitted."""
    swing: float
    """The standard deviation of the logarithm of the number of batches per day. Fitted."""


TENANTS: dict[str, Tenant] = {
    "res-a": Tenant(1, (429, 14, 260, 625, 40), 0.576, 0.00),
    "res-b": Tenant(2, (18_319, 1_593, 931, 148, 238), 0.748, 0.38),
    "res-c": Tenant(2, (3_285, 161, 716, 185, 0), 0.749, 1.16),
    "res-d": Tenant(4, (1_754, 0, 0, 0, 0), 0.207, 2.00),
    "res-e": Tenant(5, (2_682, 110, 3_005, 0, 0), 0.647, 0.70),
    "res-f": Tenant(78, (8_181, 88, 618, 1_337, 559), 0.466, 0.00),
    "prod-a": Tenant(24, (227, 54, 23, 1_132, 138), 0.262, 1.20),
    "prod-b": Tenant(29, (16_446, 67, 605, 1_344, 22), 0.459, 0.00),
    "prod-c": Tenant(31, (4_692, 301, 1_905, 4_415, 1_206), 2.477, 0.30),
    "prod-d": Tenant(43, (781, 6, 545, 650, 95), 0.487, 0.00),
    "prod-e": Tenant(54, (58_407, 532, 2_118, 959, 2), 0.630, 0.00),
}
Durations = Literal["by_size", "alike"]
Name = Literal["res-a", "res-b", "res-c", "res-d", "res-e", "res-f", "prod-a", "prod-b", "prod-c", "prod-d", "prod-e"]


def apportion(weights: Sequence[float], whole: int, least: int = 0) -> list[int]:
    """Divide `whole` into integers in proportion to the weights: rounded down, with one more for the largest remainders. Each
    is at least `least`, at the cost of the largest ones. Raises ValueError if that is impossible."""
    if whole < least * len(weights):
        raise ValueError(f"{whole} are too few for {len(weights)}, of which each has {least} or more")
    total = sum(weights)
    exact = [whole * weight / total for weight in weights]
    shares = [int(share) for share in exact]
    by_rest = sorted(range(len(weights)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_rest[: whole - sum(shares)]:
        shares[i] += 1
    for i in range(len(shares)):
        while shares[i] < least:
            shares[i] += 1
            shares[shares.index(max(shares))] -= 1
    return shares


def quotas(nodes: int = NODES) -> dict[str, int]:
    """The tenants' quotas on a cluster of another size, in nodes: table 1's proportions, and one at least.

    The paper does not give the quotas on 200 nodes.
    """
    return _assign_nodes({name: tenant.nodes for name, tenant in TENANTS.items()}, nodes)


def sampled_quotas(nodes: int) -> dict[str, int]:
    """Quotas without a minimum of one node: the cluster of the paper's figure 6 has 12 nodes, too few for eleven tenants.
    Tenants without a node are left out."""
    shares = apportion([tenant.nodes for tenant in TENANTS.values()], nodes)
    return {name: share for name, share in zip(TENANTS, shares, strict=True) if share}


def balanced_quotas(nodes: int = NODES) -> dict[str, int]:
    """Quotas by the GPU time that each tenant's jobs ask for (table 5), and at least one node."""
    return _assign_nodes({name: tenant.load * tenant.nodes for name, tenant in TENANTS.items()}, nodes)


def _assign_nodes(weights: Mapping[str, float], nodes: int) -> dict[str, int]:
    owned = nodes - round(nodes * SPARE / NODES)
    return dict(zip(weights, apportion(list(weights.values()), owned, 1), strict=True))


class Hived(Model):
    """Jobs of the paper's tenants."""

    kind: Literal["hived"] = "hived"
    jobs: int = Field(default=JOBS, ge=1, le=MOST_JOBS, description="of all tenants together, in table 2's proportions")
    days: Annotated[float, range_validator(1e-3, 1e5)] | None = Field(
        default=None, description="in which they come; none: at the paper's rate, 62 for all"
    )
    tenants: tuple[Name, ...] = Field(default=(), description="only the jobs of these, which are the same then; none: of all")
    scale: Rate = Field(
        default=1, description="times the jobs' work; 1: all of it is 70 % of the paper's 279 nodes while jobs come"
    )
    durations: Durations = Field(
        default="by_size",
        description="of each size as Philly's jobs of that size, or of all as Philly's of one GPU; an assumption",
    )
    nodes: int = Field(
        default=NODES,
        ge=1,
        le=NODES,
        description="of the cluster; less than the paper's 279: a random sample of the jobs, in proportion, without those that "
        "are wider than what their tenant owns there",
    )
    models: bool = Field(default=False, description="jobs are of the models of table 3, for `sharing`")
    grace_s: float = Field(default=30, ge=0, le=LONGEST_S, description="an assumption")
    file: Path | None = Field(default=None, description="the Philly trace, whose times and durations are then drawn instead")

    @property
    def arrivals(self) -> Recorded:
        """Recorded arrivals, because the times are part of the draw."""
        return Recorded()

    @property
    def span_days(self) -> float:
        return self.days or DAYS * self.jobs / JOBS

    def counts(self) -> dict[str, tuple[int, ...]]:
        """The number of jobs of each tenant that takes part, by SIZES."""
        flat = apportion([count for tenant in TENANTS.values() for count in tenant.jobs], self.jobs)
        each = len(SIZES)
        counts = {name: tuple(flat[i * each : (i + 1) * each]) for i, name in enumerate(TENANTS)}
        return {name: of for name, of in counts.items() if not self.tenants or name in self.tenants}

    def expected_jobs(self) -> int | None:
        """The number of jobs; None if it is drawn."""
        return sum(map(sum, self.counts().values())) if self.nodes == NODES else None


class _Drawn(NamedTuple):
    at_s: float
    size: int
    """One of SIZES."""
    work_s: float


class _Trace(NamedTuple):
    """Data of the Philly trace to draw from."""

    times: list[list[float]]
    """Submit times of each virtual cluster, those with the most jobs first; from 0 to 1 within the trace's busy weeks."""
    durations_s: dict[int, list[float]]
    """Durations by SIZES; other numbers of GPUs count as the next smaller one."""

    @staticmethod
    def read(file: Path) -> "_Trace":
        submits: dict[str, list[float]] = {}
        durations: dict[int, list[float]] = {size: [] for size in SIZES}
        for row in rows(file, philly.COLUMNS):
            at = (row.micros("submit_s") / SECOND / DAY_S - fitted.BUSY[0]) / (fitted.BUSY[1] - fitted.BUSY[0])
            if 0 <= at <= 1:
                submits.setdefault(row.text("vc"), []).append(at)
            gpus = max(row.amount("num_gpus"), 1)
            durations[max(size for size in SIZES if size <= gpus)].append(max(row.micros("duration_s") / SECOND, 1))
        if len(submits) < len(TENANTS) or not all(durations.values()):
            first, last = fitted.BUSY
            rule = f"has not jobs of all sizes, and of {len(TENANTS)} virtual clusters, in its days {first} to {last}"
            raise BadTrace(file, 0, "", rule)
        return _Trace(sorted(submits.values(), key=len, reverse=True), durations)

    def draw_jobs(self, name: str, counts: tuple[int, ...], days: float, rng: Random) -> Iterator[_Drawn]:
        """Draw jobs. The tenant with the most jobs has the times of the virtual cluster with the most, and so on."""
        rank = sorted(TENANTS, key=lambda tenant: -sum(TENANTS[tenant].jobs)).index(name)
        sizes = [size for size, count in zip(SIZES, counts, strict=True) for _ in range(count)]
        for size, at in zip(sizes, rng.choices(self.times[rank], k=len(sizes)), strict=True):
            yield _Drawn(at * days * DAY_S, size, rng.choice(self.durations_s[size]))


def jobs(
    model: Hived, seed: int, folder: Path = Path(), tenants: Mapping[str, Tenant] = MappingProxyType(TENANTS)
) -> Iterator[SimJob]:
    """Yield the jobs in order of arrival. Raises BadTrace."""
    trace = None if model.file is None else _Trace.read(folder / model.file)
    made = [
        job
        for name, counts in model.counts().items()
        for job in _tenant(model, name, tenants[name], counts, Random(f"{seed}:{name}"), trace)
    ]
    if model.nodes < NODES:
        owned = {name: count * NODE_GPUS for name, count in sampled_quotas(model.nodes).items()}
        made = list(sample_jobs(made, model.nodes / NODES, owned, seed))
    if model.models:
        made = list(of_models(made, seed))
    yield from sorted(made, key=lambda job: job.submit_us)


def _tenant(
    model: Hived, name: str, tenant: Tenant, counts: tuple[int, ...], rng: Random, trace: _Trace | None
) -> Iterator[SimJob]:
    """A tenant's jobs, stretched to its load. No two have the same time, by which a tenant's jobs are identified."""
    days = model.span_days
    drawn = sorted(trace.draw_jobs(name, counts, days, rng) if trace else _draw_batches(model, name, tenant, counts, rng))
    gpus = [_width(tenant, job.size, rng) for job in drawn]
    asked = sum(count * job.work_s for count, job in zip(gpus, drawn, strict=True))
    stretch = model.scale * tenant.load * tenant.nodes * NODE_GPUS * days * DAY_S / asked if asked else 1
    grace_us = round(model.grace_s * SECOND)
    last: Micros = -1
    for count, job in zip(gpus, drawn, strict=True):
        demand, gang = _demand_of(count)
        last = max(round(job.at_s * SECOND), last + 1)
        work_us = max(round(job.work_s * stretch * SECOND), SECOND)
        yield SimJob(spec(demand, JobClass.BEST_EFFORT, grace_us, gang), work_us, last, name, name)


@cache
def _demand_of(gpus: int) -> tuple[Vector, tuple[TaskGroup, ...]]:
    return by_gpus(gpus, NODE_GPUS, lambda each: Vector(0, 0, each))


def _width(tenant: Tenant, size: int, rng: Random) -> int:
    """The GPUs of a job. Those of "16 or more" are whole nodes, as in Philly, and apart from the 16 no more than the quota."""
    if size < SIZES[-1]:
        return size
    widths = {nodes: share for nodes, share in fitted.WIDE.items() if nodes <= max(2, tenant.nodes)}
    (nodes,) = rng.choices(list(widths), list(widths.values()))
    return nodes * NODE_GPUS


def _draw_batches(model: Hived, name: str, tenant: Tenant, counts: tuple[int, ...], rng: Random) -> Iterator[_Drawn]:
    """Draw batches of jobs with the same GPUs and correlated durations. No batch asks for more than the quota."""
    days = model.span_days
    sums = list(accumulate(_rates(name, tenant.swing, days, rng)))
    scores = NormalDist()
    for size, count in zip(SIZES, counts, strict=True):
        durations_s = fitted.DURATIONS_S[size if model.durations == "by_size" else SIZES[0]]
        left, most = count, max(tenant.nodes * NODE_GPUS // size, 1)
        while left:
            batch = min(left, most, round(fitted.quantile(fitted.BATCHES[size], rng.random())))
            left -= batch
            at_s = (bisect_right(sums, rng.random() * sums[-1]) + rng.random()) * HOUR_S
            score = sqrt(fitted.LIKENESS) * rng.gauss(0, 1)
            for _ in range(batch):
                own = score + sqrt(1 - fitted.LIKENESS) * rng.gauss(0, 1)
                yield _Drawn(min(at_s, days * DAY_S), size, fitted.quantile(durations_s, scores.cdf(own)))
                at_s += rng.expovariate(1 / fitted.GAP_S)


def _rates(name: str, swing: float, days: float, rng: Random) -> Iterator[float]:
    """The relative rate of batches in each hour. Tenants' peaks interlace: their waves begin one after another."""
    phase = list(TENANTS).index(name) / len(TENANTS)
    chance = rng.gauss(0, 1)
    for day in range(max(1, round(days))):
        wave = sqrt(2) * sin(2 * pi * (day / fitted.WAVE_DAYS + phase))
        busy = sqrt(fitted.WAVE) * wave + sqrt(1 - fitted.WAVE) * chance
        factor = fitted.DAYS[day % 7] * exp(swing * busy)
        yield from (factor * hour for hour in fitted.HOURS)
        chance = fitted.NEXT_DAY * chance + sqrt(1 - fitted.NEXT_DAY**2) * rng.gauss(0, 1)
