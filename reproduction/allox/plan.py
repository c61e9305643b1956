"""The simulations of AlloX's evaluation, as data: the clusters, the policies, and the cases of each part."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple, get_args

from reproduction.allox.devices import CLUSTERS, TENANTS, weights, workload
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.workloads import Allox, AlloxExperiment, AlloxLongJobs
from scheduler_service.sim.workloads.allox import SPAN_S, SPEEDUPS

SIMULATED = (Nodes(nodes=20, cpus=1, memory_gib=32, gpus=1), Nodes(nodes=20, cpus=20, memory_gib=32))
"""Section 5.1: 20 GPUs, 20 CPUs of 20 cores each, 1,280 GB. Each GPU has a core of its own for its job."""
EXPERIMENT = (Nodes(nodes=4, cpus=4, memory_gib=61, gpus=1), Nodes(nodes=8, cpus=20, memory_gib=64))
"""Section 5.1: the cluster of the experiment."""
USERS, EXPERIMENT_USERS = len(SPEEDUPS), 4
ALPHA, ERROR, PROFILING = 0.1, 0.1, 0.03
TIMEOUT_S = 600
"""The timeout of AlloX+. The paper gives no value."""

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ERRORS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
OVERHEADS = (0.0, 0.03, 0.05, 0.1, 0.2, 0.3)

SRPT = "srpt"
"""Not a policy of the engine (see `allox/srpt.py`): its cases are never simulated there."""
TITLES = {
    "allox": "AlloX",
    "allox-priced": "AlloX, priced",
    "allox-plus": "AlloX+",
    "drfa": "DRFA",
    "drfs": "DRFS",
    "es": "ES",
    "drff": "DRFF",
    "sjf-plus": "SJF+",
    "jsq-plus": "JSQ+",
    "best-fit": "BF",
    "es-fcfs": "ES, first come first served",
    SRPT: "SRPT",
}
IN_SIMULATION = tuple(name for name in TITLES if name != "allox-priced")
AT_RATES = ("allox", "sjf-plus", "allox-priced", SRPT)
IN_EXPERIMENT = ("allox", "drfa", "es", "drfs", "drff", "sjf-plus")
UNPROFILED = ("drff", "best-fit", "es-fcfs")
"""Policies that use no estimates, so their jobs are not profiled. (Which device is the fastest is a user's preference.)"""

Part = Literal["experiment", "simulation", "starvation", "alpha", "errors", "profiling", "rates", "devices", "busy-devices"]
PARTS: tuple[Part, ...] = get_args(Part)
ON_DEVICES: tuple[Part, ...] = ("devices", "busy-devices")
"""Parts that need a trace."""


class Study(NamedTuple):
    until_s: float = SPAN_S
    """Jobs arrive until then, in the simulation."""
    varied_s: float = 3000
    """Jobs arrive until then if a parameter is varied."""
    seeds: tuple[int, ...] = (1,)
    varied_seeds: tuple[int, ...] = (1, 2, 3)
    experiments: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    """Seeds of the experiment."""
    rates: tuple[float, ...] = (0.85, 1.0, 1.15)
    """Factors on the paper's arrival rate, in the part that varies it."""
    rates_s: float = 4000
    """Jobs arrive until then if the arrival rate is varied."""
    rate_seeds: tuple[int, ...] = (101, 102, 103, 104, 105, 106)
    """Seeds if the arrival rate is varied. No policy and no setting was chosen by their results."""
    jobs: int | None = None
    """The maximum number of jobs in each simulation."""
    traced: int = 5000
    """The maximum number of jobs of the trace, on real devices."""
    traces: "Traces | None" = None


class Traces(NamedTuple):
    philly: Path
    rates: Path
    """The file of Gavel's measurements."""


QUICK = Study(until_s=3000, varied_s=1000, varied_seeds=(1,), rates_s=1000, rate_seeds=(101, 102), traced=1000)


class Point(NamedTuple):
    """A policy with the parameters that are varied."""

    policy: str
    alpha: float = ALPHA
    error: float = ERROR
    profiling: float = PROFILING
    rate: float = 1
    """The arrival rate, relative to the paper's."""
    limited: bool = True
    """Whether the priced order holds back users who are far above the average."""


OF_ALL_USERS = Point("allox", alpha=1)
UNLIMITED = Point("allox-priced", limited=False)


def average_speedup() -> float:
    """The speedup that DRFA is configured with: the mean over users of their mean speedup."""
    return fmean(math.exp(of.mu + of.sigma**2 / 2) for of in SPEEDUPS)


def policy(point: Point, users: int, speedups: Sequence[float]) -> Policy:
    """`speedups`: by configuration, how much faster jobs are in it on average than in the slowest one."""
    own: Mapping[str, Mapping[str, float]] = {
        "allox": {"alpha": point.alpha},
        "allox-priced": {} if point.limited else {"patience": 0},
        "allox-plus": {"timeout": TIMEOUT_S},
        "drfa": {f"weight.{number}": round(weight, 2) for number, weight in enumerate(speedups)},
        "es": {"users": users},
        "es-fcfs": {"users": users},
    }
    engine = "fifo" if point.policy == SRPT else point.policy
    return Policy(name=engine, label=title(point), settings=tuple(own.get(point.policy, {}).items()))


def title(point: Point) -> str:
    alpha = f", alpha = {point.alpha:g}" if point.alpha != ALPHA else ""
    return TITLES[point.policy] + alpha + ("" if point.limited else ", no limit")


def points(part: Part, study: Study) -> list[Point]:
    if part == "experiment":
        return [Point(name) for name in IN_EXPERIMENT]
    if part in ("simulation", "busy-devices"):
        return [*points("devices", study), Point("allox-priced"), UNLIMITED]
    if part == "devices":
        return [Point("allox"), OF_ALL_USERS, *(Point(name) for name in IN_SIMULATION if name != "allox")]
    if part == "alpha":
        return [*(Point("allox", alpha=alpha) for alpha in ALPHAS), Point("es"), Point(SRPT)]
    if part == "starvation":
        return [Point(name) for name in (*IN_SIMULATION, "allox-priced")]
    if part == "rates":
        return [of._replace(rate=rate) for rate in study.rates for of in (*map(Point, AT_RATES), OF_ALL_USERS, UNLIMITED)]
    if part == "errors":
        return [Point(name, error=error) for name in ("allox", "es", SRPT) for error in ERRORS]
    return [Point(name, profiling=profiling) for name in ("allox", "es", "drff", SRPT) for profiling in OVERHEADS]


def cases(study: Study, part: Part, point: Point) -> list[Case]:
    """Return a case for each seed."""
    if part in ON_DEVICES:
        return [on_devices(study, part, point)]
    profiling = 0.0 if point.policy in UNPROFILED else point.profiling
    if part == "experiment":
        speedup = (10 - 1.8) / math.log(10 / 1.8)  # the mean of a log-uniform distribution
        of = policy(point, EXPERIMENT_USERS, (speedup, 1))
        jobs = AlloxExperiment(error=point.error, profiling=profiling)
        return [Case(cluster=EXPERIMENT, workload=jobs, policy=of, seed=seed) for seed in study.experiments]
    until, seeds = study.varied_s, study.varied_seeds
    if part == "simulation":
        until, seeds = study.until_s, study.seeds
    elif part == "rates":
        until, seeds = study.rates_s, study.rate_seeds
    kind = AlloxLongJobs if part == "starvation" else Allox
    workload = kind(until_s=until, rate=point.rate, jobs=study.jobs, error=point.error, profiling=profiling)
    of = policy(point, USERS, (average_speedup(), 1))
    return [Case(cluster=SIMULATED, workload=workload, policy=of, seed=seed) for seed in seeds]


def on_devices(study: Study, part: Part, point: Point) -> Case:
    """Philly's jobs on the V100s, P100s and K80s of this part."""
    assert study.traces is not None  # the command has checked it
    on = CLUSTERS[part]
    count = min(on.jobs, study.traced, study.jobs or on.jobs)
    jobs = workload(study.traces.philly, study.traces.rates, count, point.error)
    return Case(cluster=on.cluster(), workload=jobs, policy=policy(point, TENANTS, weights(study.traces.rates)))
