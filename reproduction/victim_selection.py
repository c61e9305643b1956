"""`python -m reproduction scores`: other ways to choose victims, against FitGpp's (docs/scores.md)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console

from reproduction.fitgpp.plan import MINUTE, OPENB_CLUSTER, PAPERS_CLUSTER, PHILLY_CLUSTER, Traces, openb, philly
from reproduction.studies import Simulated, Table, as_markdown, fill_in, number, show, simulate_cases
from scheduler_service.policies.options import AS_PUBLISHED
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.commands import say
from scheduler_service.sim.experiments.estimates import Estimate, estimate
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.workloads import FitGpp, Generated, Workload
from scheduler_service.sim.workloads.arriving import Closed
from scheduler_service.sim.workloads.distributions import Normal, Uniform
from scheduler_service.sim.workloads.generated import Kind

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
DAY = 86400

FITGPP = Policy(name="fitgpp", label="FitGpp")
TRIED = (
    *(Policy(name="fitgpp", s=s, label=f"FitGpp, s = {s:g}") for s in (8, 16)),
    *(Policy(name=name) for name in ("young", "old", "waste", "snug", "movable", "pairs", "patient")),
    *(Policy(name="thrifty", s=s, label=f"thrifty, s = {s:g}") for s in (4, 8)),
)
FINAL = (
    Policy(name="fitgpp", s=8, label="FitGpp, s = 8"),
    *(Policy(name="thrifty", s=s, label=f"thrifty, s = {s:g}") for s in (4, 8)),
)
IN_FLIGHT = tuple(
    Policy(name=name, trials_in_flight=most, label=f"{title}, {most or 'any number'} in flight")
    for name, title in (("fitgpp", "FitGpp"), ("thrifty", "thrifty"))
    for most in (1, 2, 4, None)
    if (name, most) != ("fitgpp", None)
)

PARTS: dict[str, tuple[str, tuple[Policy, ...]]] = {
    "tried": ("every candidate, on the seeds for development", TRIED),
    "held-out": ("on seeds that nothing was chosen by", FINAL),
    "in-flight": ("how many trials may wait for victims at once", IN_FLIGHT),
}

WORKLOADS = {
    "published": "the FitGpp paper's jobs, served as in the paper",
    "paper": "the FitGpp paper's jobs, decisions once a minute",
    "at-once": "the FitGpp paper's jobs, decisions at once",
    "gangs": "jobs of which a sixth are gangs, on 32 nodes, decisions at once",
    "philly": "Philly's jobs on 50 nodes, decisions at once",
    "openb": "openb's demands on 84 nodes, decisions at once",
}
IN_PART = {
    "tried": ("published", "at-once", "philly"),
    "held-out": tuple(WORKLOADS),
    "in-flight": ("gangs", "philly"),
}

COLUMNS = {
    "trials' wait": "trial.wait_s.mean",
    "trials p95": "trial.slowdown.p95",
    "trials p99": "trial.slowdown.p99",
    "best-effort p50": "best_effort.slowdown.p50",
    "best-effort p95": "best_effort.slowdown.p95",
    "best-effort p99": "best_effort.slowdown.p99",
    "preempted": "preempted.share",
    "interval p50": "interval_s.p50",
    "interval p95": "interval_s.p95",
    "GPU-hours in grace": "gpu_h.grace",
}
"""Metrics by their titles."""
SCALES = {"preempted.share": 100.0, "interval_s.p50": 1 / 60, "interval_s.p95": 1 / 60}

PHILLY_DAYS = {101: 30, 102: 34, 103: 38, 201: 46, 202: 49, 203: 52.1, 204: 60, 205: 67.1, 206: 70.5, 207: 75.3, 208: 85}
"""The day of the trace on which a seed's jobs begin; no two seeds have the same jobs."""


_AS_PUBLISHED = {name: getattr(AS_PUBLISHED, name) for name in ("trials_in_flight", "sparing", "in_order")}


class Study(NamedTuple):
    jobs: int = 2**13
    """Jobs for held-out seeds; traces and development use half as many."""
    development: tuple[int, ...] = (101, 102, 103)
    held_out: tuple[int, ...] = (201, 202, 203, 204, 205, 206, 207, 208)
    traces: Traces | None = None

    def seeds(self, part: str) -> tuple[int, ...]:
        """The seeds of a part. In-flight limits are not chosen by held-out seeds, so half of these are enough for them."""
        return {"tried": self.development, "in-flight": self.held_out[:4]}.get(part, self.held_out)

    def workloads(self, part: str) -> Iterator[str]:
        """Workloads of a part whose files are available."""
        return (name for name in IN_PART[part] if self.traces is not None or name not in Traces._fields)


QUICK = Study(jobs=2**11, development=(101, 102), held_out=(201, 202))


def case(study: Study, workload: str, policy: Policy, seed: int) -> Case:
    cluster, jobs = _site(study, workload, seed)
    every = MINUTE if workload in ("published", "paper") else 0
    if workload == "published":
        policy = policy.model_copy(update=_AS_PUBLISHED)
    return Case(cluster=(cluster,), workload=jobs, policy=policy, seed=seed, decide_every=every)


def _site(study: Study, workload: str, seed: int) -> tuple[Nodes, Workload]:
    if workload == "gangs":
        return Nodes(nodes=32, gpus=8), gangs(study.jobs // 2)
    if workload not in Traces._fields:
        return PAPERS_CLUSTER, FitGpp(jobs=study.jobs if seed in study.held_out else study.jobs // 2)
    assert study.traces is not None  # else it is left out
    file = getattr(study.traces, workload).absolute()
    if workload == "openb":
        return OPENB_CLUSTER, openb(file, study.jobs // 2)
    jobs = philly(file, study.jobs // 2)
    return PHILLY_CLUSTER, jobs.model_copy(update={"from_s": float(PHILLY_DAYS[seed] * DAY)})


def gangs(jobs: int) -> Generated:
    """Jobs with the paper's run times and grace periods; of trials and of best-effort jobs each, one in six is a gang."""
    grace = Normal(mean=180, deviation=66, low=1e-6, high=1200)
    gpus, tasks = Uniform(low=4, high=8, step=4), Uniform(low=2, high=4, step=1)
    trial = Kind(trial=True, share=5, work_s=Normal(mean=300, deviation=300, low=60, high=1800), gpus=_few(), grace_s=grace)
    other = Kind(share=12, work_s=Normal(mean=1800, deviation=600, low=60, high=DAY), gpus=_few(), grace_s=grace)
    wide = {"gpus": gpus, "tasks": tasks}
    kinds = (trial, trial.model_copy(update=wide | {"share": 1}), other, other.model_copy(update=wide | {"share": 2}))
    return Generated(jobs=jobs, kinds=kinds, arrivals=Closed(load=2.0, times_from="fifo"))


def _few() -> Normal:
    return Normal(mean=0.5, deviation=2.4, low=1, high=8, step=1)


@click.command("scores")
@click.option("--quick", is_flag=True, help="Two seeds of 2^10 jobs for each: in some minutes, and far off.")
@click.option("--part", "parts", type=click.Choice(list(PARTS)), multiple=True, help="Only this part.")
@click.option("--on-traces", metavar="PHILLY OPENB", type=(FILE, FILE), help="On these traces, too.")
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="[default: results/scores, or -quick]")
@click.option("--on", metavar="WHERE", default="local", show_default=True, help="local, local[N], or tcp://HOST:PORT of Dask.")
@click.option("--fresh", is_flag=True, help="Simulate anew what is there already.")
@click.option("--document", metavar="FILE", type=FILE, help="Fill in the tables of this Markdown file.")
def command(
    quick: bool,
    parts: tuple[str, ...],
    on_traces: tuple[Path, Path] | None,
    output: Path | None,
    on: str,
    fresh: bool,
    document: Path | None,
) -> None:
    """Other ways to choose victims, against FitGpp's, on the same jobs (docs/scores.md).

    The parts are all candidates on the seeds for development, the chosen ones on held-out seeds, and how many trials may wait
    for victims at the same time. Ctrl-C loses nothing but the simulations in progress: run the same command to continue.

    \b
    Examples:
      python -m reproduction scores --quick
      python -m reproduction scores --on-traces philly_jobs.csv.gz openb_pods.csv.gz --document docs/scores.md
    """
    study = (QUICK if quick else Study())._replace(traces=None if on_traces is None else Traces(*on_traces))
    chosen = parts or tuple(PARTS)
    folder = output or Path("results") / ("scores-quick" if quick else "scores")
    found = simulate_cases((one for part in chosen for one in _cases(study, part)), folder, on, fresh)
    made = [_table(study, part, workload, found) for part in chosen for workload in study.workloads(part)]
    show(made, folder)
    fill_in(document, {table.name: as_markdown(table) for table in made}, {}, folder)
    say(Console(stderr=True), f"{folder}: tables.md")


def _cases(study: Study, part: str) -> Iterator[Case]:
    for workload in study.workloads(part):
        for policy in (FITGPP, *PARTS[part][1]):
            for seed in study.seeds(part):
                yield case(study, workload, policy, seed)


Numbers = Sequence[Mapping[str, float]]
"""Metrics of each seed."""


def _table(study: Study, part: str, workload: str, found: Simulated) -> Table:
    seeds = study.seeds(part)

    def numbers(policy: Policy) -> Numbers:
        return [found[case(study, workload, policy, seed)].numbers for seed in seeds]

    base, (told, policies) = numbers(FITGPP), PARTS[part]
    own = tuple(_own(base, metric) for metric in COLUMNS.values())
    changes = ((p.title, tuple(map(told_change, _changes(base, numbers(p))))) for p in policies)
    return Table(
        f"{part}-{workload}",
        f"{WORKLOADS[workload]}: {told}",
        tuple(COLUMNS),
        ((FITGPP.title, own), *changes),
        f"FitGpp (s = 4) in its own units (wait in seconds, preempted in % of the jobs, intervals in minutes), the others as "
        f"change in %, ± half a 95 % interval of {len(seeds)} seeds, seed by seed. * leaves out 0.",
    )


def _own(base: Numbers, metric: str) -> str:
    values = [numbers[metric] for numbers in base if metric in numbers]
    return number(estimate(values).mean * SCALES.get(metric, 1)) if values else "-"


def _changes(base: Numbers, other: Numbers) -> Iterator[Estimate | None]:
    return (
        change([(old[m], new[m]) for old, new in zip(base, other, strict=True) if m in old and m in new])
        for m in COLUMNS.values()
    )


def change(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    """The increase from the first to the second values, as a share of the mean of the first."""
    whole = sum(old for old, _ in pairs) / max(len(pairs), 1)
    return estimate([(new - old) / whole for old, new in pairs]) if whole else None


def told_change(found: Estimate | None) -> str:
    if found is None:
        return "-"
    mean, half = found.mean * 100, None if found.half is None else found.half * 100
    mark = " *" if half is not None and abs(mean) > half else ""
    return f"{mean:+.1f}" + ("" if half is None else f" ± {half:.1f}{mark}")
