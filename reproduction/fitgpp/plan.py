"""The simulations for the tables and figures of FitGpp's evaluation, as data: points, and the cases of each.

A point is one row of a table or one dot of a figure: a policy on a workload, simulated for several sets of jobs. Points that
several tables and figures share are simulated once, and so is each FIFO run whose submit times the other policies replay.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scheduler_service.policies.options import AS_PUBLISHED
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.workloads import FitGpp, Openb, Philly, Workload
from scheduler_service.sim.workloads.arriving import Poisson
from scheduler_service.sim.workloads.assuming import Trials
from scheduler_service.sim.workloads.distributions import Normal

MINUTE = 60.0
PAPERS_CLUSTER = Nodes(nodes=84, cpus=32, memory_gib=256, gpus=8)
PHILLY_CLUSTER = Nodes(nodes=50, cpus=32, memory_gib=256, gpus=8)
OPENB_CLUSTER = Nodes(nodes=84, cpus=96, memory_gib=384, gpus=8)

WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Values of s in figure 4."""
CAPS: tuple[int | None, ...] = (1, 2, 4, 8, None)
"""Values of P in figure 5; None: no bound."""
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of trials in figure 6."""
GRACES = (1.0, 2.0, 4.0, 8.0)
"""Factors on the paper's grace periods in figure 7."""


def published_policy(name: str, label: str, **others: Any) -> Policy:
    """A policy as the paper describes it, not as a service runs it, except for the settings in `others`."""
    return Policy(name=name, label=label, **(AS_PUBLISHED._asdict() | others))


def fitgpp(s: float = AS_PUBLISHED.s, cap: int | None = AS_PUBLISHED.cap) -> Policy:
    return published_policy("fitgpp", "FitGpp" if s == AS_PUBLISHED.s else f"FitGpp, s = {s:g}", s=s, cap=cap)


FIFO = Policy(name="fifo", label="FIFO", in_order=True)
LRTP = published_policy("lrtp", "LRTP")
RAND = published_policy("rand", "RAND")
FITGPP = fitgpp()
POLICIES = (FIFO, LRTP, RAND, FITGPP)
SERVED = Policy(name="fitgpp", label="FitGpp, as a service has it")
"""Trials are served as the service does: one that waits is passed by, and any number of them may wait for victims. The
service's backfill and guaranteed run time are left out, because the paper has neither."""

UNBOUNDED = Policy(name="fitgpp", label="the same, P without bound", cap=None)
"""FitGpp without a bound: jobs of a trace may run for weeks, in which P = 1 is soon used up."""


class Point(NamedTuple):
    policy: Policy
    trials: float = 0.3
    grace: float = 1.0
    trace: str = ""
    """philly or openb; "": the paper's synthetic workload."""


class Traces(NamedTuple):
    """The files of the traces."""

    philly: Path
    openb: Path


class Study(NamedTuple):
    """The amount to simulate."""

    jobs: int = 2**16
    sets: int = 8
    """Sets of jobs for the tables, made with seeds 1, 2, ..."""
    figure_sets: int = 8
    """Sets of jobs for the figures that vary a parameter; the paper does not say how many it used there."""
    repeats: int = 4
    """Simulations of RAND on each set, in the tables."""
    traces: Traces | None = None
    trace_sets: int = 3
    """Sets of what traces do not have: classes and grace periods."""
    trace_jobs: int | None = None
    """Jobs of each trace; None: all of Philly's, and 2^15 drawn from openb's."""


QUICK = Study(jobs=2**12, sets=1, figure_sets=1, repeats=1, trace_sets=1, trace_jobs=2**12)

PARTS = ("tables", "s", "P", "trials", "grace", "traces")


def points(part: str) -> list[Point]:
    """The points of one part of the evaluation."""
    if part == "tables":
        return [*map(Point, POLICIES), Point(SERVED), *(Point(without_cap(policy)) for policy in POLICIES[1:])]
    if part == "s":
        return [Point(fitgpp(s=s)) for s in WEIGHTS]
    if part == "P":
        return [Point(fitgpp(cap=cap)) for cap in CAPS]
    if part == "trials":
        return [Point(policy, trials=share) for share in SHARES for policy in POLICIES]
    if part == "grace":
        return [Point(policy, grace=grace) for grace in GRACES for policy in (*POLICIES, fitgpp(s=8.0))]
    assert part == "traces"
    return [Point(policy, trace=trace) for trace in Traces._fields for policy in (*POLICIES, SERVED, UNBOUNDED)]


def without_cap(policy: Policy) -> Policy:
    """The same policy with no bound on preemptions per job."""
    return policy.model_copy(update={"cap": None})


def cases(study: Study, part: str, point: Point) -> Iterator[Case]:
    """Yield the cases of each set in turn."""
    if point.trace:
        yield from _on_a_trace(study, point)
        return
    workload = FitGpp(jobs=study.jobs, trials=point.trials, grace=point.grace)
    in_tables = part == "tables"
    repeats = study.repeats if in_tables and point.policy.name == "rand" else 1
    for seed in range(1, (study.sets if in_tables else study.figure_sets) + 1):
        for repeat in range(repeats):
            yield _case(PAPERS_CLUSTER, workload, point.policy, seed, repeat, MINUTE)


def _case(cluster: Nodes, workload: Workload, policy: Policy, seed: int, repeat: int = 0, every: float = 0) -> Case:
    return Case(cluster=(cluster,), workload=workload, policy=policy, seed=seed, repeat=repeat, decide_every=every)


def _on_a_trace(study: Study, point: Point) -> Iterator[Case]:
    """A trace has its own times, so FIFO's are not replayed; and jobs of a minute must not wait for the next one."""
    assert study.traces is not None  # the part is only available with its files
    file = getattr(study.traces, point.trace).absolute()
    cluster = PHILLY_CLUSTER if point.trace == "philly" else OPENB_CLUSTER
    workload = philly(file, study.trace_jobs) if point.trace == "philly" else openb(file, study.trace_jobs or 2**15)
    for seed in range(1, study.trace_sets + 1):
        yield _case(cluster, workload, point.policy, seed)


def philly(file: Path, jobs: int | None) -> Philly:
    """Philly's jobs. Nearly a third of them took less than five minutes: these are taken as trials."""
    return Philly(
        file=file, jobs=jobs, trials=Trials(shorter_than_s=300), cpus_per_gpu=4, memory_gib_per_gpu=32, estimates="right"
    )


def openb(file: Path, jobs: int) -> Openb:
    """Only openb's resource requests: its pods run up to half a year, so run times and classes are the paper workload's."""
    return Openb(
        file=file,
        jobs=jobs,
        resample=True,
        arrivals=Poisson(load=2.0),
        trials=Trials(share=0.3),
        trial_work_s=Normal(mean=300, deviation=300, low=60, high=1800),
        work_s=Normal(mean=1800, deviation=600, low=60, high=86400),
        estimates="right",
    )


TRACES = {
    "philly": "Philly's jobs with their own times on 50 nodes of 8 GPUs, 32 CPUs and 256 GiB: the trace's own cluster had far "
    "more than they asked for. Assumed: those of less than 5 minutes are trials, 33 % of them; 4 CPUs and 32 GiB for each GPU; "
    "grace periods as in the paper's workload; LRTP knows how long each runs. A job of more than 8 GPUs is a gang.",
    "openb": "What openb's pods ask for, drawn at random, on 84 nodes of 8 GPUs, 96 CPUs and 384 GiB, with Poisson arrivals at "
    "a load of 2.0: the queue grows as long as jobs come. Assumed: 30 % are trials; a part of a GPU is a GPU; run times and "
    "grace periods as in the paper's workload; LRTP knows how long each runs.",
}
"""How the traces are used, and the assumptions about them."""
