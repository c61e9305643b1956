"""`python -m reproduction together`: FitGpp, HiveD, AlloX and Gandiva combined, and each alone (docs/choosing-a-policy.md)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
import numpy as np
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from rich.console import Console

from reproduction.four_papers_plan import NODES, Traces, Way, cases, own_policies
from reproduction.studies import Table, as_markdown, fill_in, number, show, simulate_cases
from scheduler_service.sim.experiments.commands import say
from scheduler_service.sim.experiments.figures import COLOURS, save, sheet
from scheduler_service.sim.experiments.history import Floats
from scheduler_service.sim.experiments.kept_results import Summary
from scheduler_service.sim.workloads import BadTrace
from scheduler_service.sim.workloads.gavel_choices import Tenant

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
JOBS, QUICK_JOBS = 250, 50
SEEDS = 5
HOUR_US = 3.6e9
CLASSES = {"trial": "trials", "best_effort": "best-effort jobs"}


class Seen(NamedTuple):
    """The outcome of one way to schedule, with one seed. Lists and arrays are by job."""

    vc: list[str]
    job_class: list[str]
    start_s: Floats
    """Seconds from the submit to the first start."""
    completion_s: Floats
    lost_gpu_h: float
    """GPU-hours lost to grace periods, work that is repeated, and switches of turns."""
    numbers: Mapping[str, float]

    def mask_of(self, vc: str = "", job_class: str = "") -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        both = zip(self.vc, self.job_class, strict=True)
        return np.array([(not vc or vc == one) and (not job_class or job_class == other) for one, other in both])


Ways = Mapping[Way, Sequence[Seen]]
"""The outcomes of each way to schedule, one for each seed."""


@click.command("together")
@click.option("--traces", metavar="PHILLY RATES PAIRS", type=(FILE, FILE, FILE), required=True, help="See docs/workloads.md.")
@click.option("--quick", is_flag=True, help=f"{QUICK_JOBS} jobs instead of {JOBS}.")
@click.option("--seeds", metavar="N", type=click.IntRange(1), default=SEEDS, show_default=True, help="The seeds are 1 to N.")
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="[default: results/together, or -quick]")
@click.option("--on", metavar="WHERE", default="local", show_default=True, help="local, local[N], or tcp://HOST:PORT of Dask.")
@click.option("--fresh", is_flag=True, help="Simulate anew what is there already.")
@click.option("--document", metavar="FILE", type=FILE, help="Fill in the tables of this Markdown file.")
def command(
    traces: tuple[Path, Path, Path], quick: bool, seeds: int, output: Path | None, on: str, fresh: bool, document: Path | None
) -> None:
    """FitGpp, HiveD, AlloX and Gandiva combined on jobs of Philly's trace, against each alone and against FIFO.

    A seed draws which kind each job has and by how much its estimate is off. The trace's times and durations are the same.

    \b
    Example:
      python -m reproduction together --traces philly_jobs.csv.gz gavel_throughputs.csv.gz gavel_colocated.csv.gz
    """
    folder = output or Path("results") / ("together-quick" if quick else "together")
    try:
        made = [cases(Traces(*traces), QUICK_JOBS if quick else JOBS, seed) for seed in range(1, seeds + 1)]
    except BadTrace as error:
        raise click.UsageError(str(error)) from error
    found = simulate_cases([case for wanted, _ in made for case in wanted.values()], folder, on, fresh, keep="all")
    ways, tenants = made[0]  # both are the trace's, the same with each seed
    seen = {way: [see(found[wanted[way]]) for wanted, _ in made] for way in ways}
    tables = [by_class(seen), by_tenant(seen, tenants)]
    show(tables, folder)
    name = "figure-together"
    save(draw_medians(seen), folder / "figures", name)
    fill_in(document, {table.name: as_markdown(table) for table in tables}, {name: "Completion times"}, folder / "figures")
    say(Console(stderr=True), f"{folder}: tables.md, figures/")


def see(summary: Summary) -> Seen:
    jobs = pq.read_table(summary.folder / "jobs.parquet")
    runs = pq.read_table(summary.folder / "runs.parquet", columns=["job", "signalled_us", "ended_us"])
    submit, start, end = (jobs[name].to_numpy().astype(np.float64) for name in ("submit_us", "start_us", "end_us"))
    gpus = dict(zip(jobs["job"].to_pylist(), jobs["gpus"].to_pylist(), strict=True))
    lost = sum(count * us for count, us in zip(jobs["gpus"].to_pylist(), jobs["lost_us"].to_pylist(), strict=True))
    for job, signalled, ended in zip(*(runs[name].to_pylist() for name in ("job", "signalled_us", "ended_us")), strict=True):
        if signalled is not None and ended is not None:
            lost += gpus[job] * (ended - signalled)
    return Seen(
        jobs["vc"].to_pylist(),
        jobs["class"].to_pylist(),
        (start - submit) / 1e6,
        (end - submit) / 1e6,
        lost / HOUR_US + summary.numbers["sharing.switching_gpu_h"],
        summary.numbers,
    )


def range_text(values: Sequence[float], shown: Callable[[float], str] = number) -> str:
    """Format the median, with the minimum and the maximum if they look different."""
    least, middle, most = (shown(value) for value in (min(values), median(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def _completions(every: Sequence[Seen]) -> list[float]:
    """Mean completion times of best-effort jobs, by seed."""
    return [float(of.completion_s[of.mask_of(job_class="best_effort")].mean()) for of in every]


def by_class(seen: Ways) -> Table:
    rows, first = [], _completions(next(iter(seen.values())))
    for way, every in seen.items():
        cells = []
        for name in CLASSES:
            some = [(of, of.mask_of(job_class=name)) for of in every]
            cells.append(range_text([of.start_s[these].mean() for of, these in some]))
            cells.append(range_text([float(np.percentile(of.start_s[these], 95)) for of, these in some]))
            cells.append(range_text([of.completion_s[these].mean() for of, these in some]))
        cells.append(range_text([100 * (mine / base - 1) for mine, base in zip(_completions(every), first, strict=True)]))
        cells.append(range_text([100 * of.numbers["sharing.rate.arrivals"] for of in every]))
        for count in ("preemptions", "reclaimed", "sharing.packings"):
            cells.append(range_text([of.numbers[count] for of in every], lambda value: f"{value:.0f}"))
        rows.append((way.title, (*cells, range_text([of.lost_gpu_h for of in every]))))
    columns = (
        *(f"{name}: {what}" for name in CLASSES.values() for what in ("to the start, s", "95 %, s", "completion, s")),
        f"the same against {next(iter(seen)).title}, %",
        *("work of a GPU, %", "preempted", "reclaimed", "packed", "GPU-hours lost"),
    )
    every = next(iter(seen.values()))
    jobs = len(every[0].vc)
    gpus = ", ".join(f"{4 * count} {model.upper()}s" for model, count in NODES.items())
    note = (
        f"{jobs} jobs on {gpus}. Work of a GPU: while jobs come, by that of a P100 which is always busy. Preempted, reclaimed: "
        f"runs. Packed: jobs. Lost: by grace periods, work that is done again, and switches of turns. {_of_seeds(every)}"
    )
    return Table("together", "Four papers at once, and each alone", columns, tuple(rows), note)


def _of_seeds(every: Sequence[Seen]) -> str:
    return f"The median of {len(every)} seeds, with the least and the most." if len(every) > 1 else "One seed."


def by_tenant(seen: Ways, tenants: Mapping[str, Tenant]) -> Table:
    own = own_policies(tenants)
    rows = []
    for way, every in seen.items():
        cells = []
        for vc in tenants:
            for name in CLASSES:
                means = [of.completion_s[some].mean() for of in every if (some := of.mask_of(vc, name)).any()]
                cells.append(range_text(means) if means else "-")
        rows.append((way.title, tuple(cells)))
    columns = tuple(f"{vc}, {name}" for vc in tenants for name in CLASSES.values())
    said = "; ".join(
        f"{vc}: {of.jobs} jobs, {100 * of.trials / of.jobs:.0f} % trials, {of.asked_s / 3600:.0f} GPU-hours, {own[vc]}"
        for vc, of in tenants.items()
    )
    note = (
        f"Virtual clusters before jobs were left out that nobody measured or that are too wide, and their own policies: {said}."
        f" {_of_seeds(next(iter(seen.values())))}"
    )
    return Table("together-tenants", "Mean completion by virtual cluster, s", columns, tuple(rows), note)


def draw_medians(seen: Ways) -> Figure:
    """Draw medians over the seeds, with the minimum and the maximum."""
    figure, all_axes = sheet(1, len(CLASSES), height=1 + 0.32 * len(seen))
    titles = [way.title for way in seen]
    for (name, title), axes in zip(CLASSES.items(), all_axes, strict=True):
        means = [[of.completion_s[of.mask_of(job_class=name)].mean() / 60 for of in every] for every in seen.values()]
        values = [median(some) for some in means]
        off = [[value - min(some) for value, some in zip(values, means, strict=True)]]
        off.append([max(some) - value for value, some in zip(values, means, strict=True)])
        axes.barh(titles, values, xerr=off, color=COLOURS[0], capsize=2)
        axes.invert_yaxis()
        axes.set(title=title.capitalize(), xlabel="mean completion (min)")
        if axes is not all_axes[0]:
            axes.set_yticklabels([])
    return figure
