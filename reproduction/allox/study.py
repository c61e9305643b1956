"""`python -m reproduction allox`: reproduces the evaluation of the AlloX paper (docs/reproduction-allox.md)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from matplotlib.figure import Figure
from rich.console import Console

from reproduction.allox import figures as allox_figures
from reproduction.allox import rates as allox_rates
from reproduction.allox import tables as allox_tables
from reproduction.allox.measures import curves, job_list, measures, outcome_of
from reproduction.allox.plan import ON_DEVICES, PARTS, QUICK, SRPT, Part, Point, Study, Traces, cases, points
from reproduction.allox.tables import Measured
from reproduction.studies import Simulated, Table, as_markdown, fill_in, show, simulate_cases
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.commands import say
from scheduler_service.sim.experiments.figures import save

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
CURVES: tuple[Part, ...] = ("simulation", "starvation")
"""Parts with figures over time."""


@click.command("allox")
@click.option("--quick", is_flag=True, help="The jobs of the first 3,000 s, and fewer of them where something is varied.")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this part; may be given several times.")
@click.option(
    "--on-traces", metavar="PHILLY RATES", type=(FILE, FILE), help="The trace, and GPUs' throughputs (docs/workloads.md)."
)
@click.option("--jobs", metavar="N", type=click.IntRange(10), help="So many jobs at most in each simulation.")
@click.option("--seeds", metavar="N", type=click.IntRange(1, 100), help="Sets of jobs for the simulation.  [default: 1]")
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="[default: results/allox, or -quick]")
@click.option("--on", metavar="WHERE", default="local", show_default=True, help="local, local[N], or tcp://HOST:PORT of Dask.")
@click.option("--fresh", is_flag=True, help="Simulate anew what is there already.")
@click.option(
    "--document", metavar="FILE", type=FILE, help="Fill in the tables of this Markdown file, and put figures beside it."
)
def command(
    quick: bool,
    parts: tuple[Part, ...],
    on_traces: tuple[Path, Path] | None,
    jobs: int | None,
    seeds: int | None,
    output: Path | None,
    on: str,
    fresh: bool,
    document: Path | None,
) -> None:
    """Figures 11 to 18 of the AlloX paper (EuroSys 2020), with the paper's and its authors' numbers.

    The parts are the experiment on a cluster, the simulation of 10,000 jobs, and the same with other values of
    alpha, with errors of the estimates, with costs of profiling, and at other rates of arrivals; and, if a trace is given,
    real jobs on two clusters with three models of GPU. SRPT, which preempts at no cost, is computed without the engine.

    \b
    Examples:
      python -m reproduction allox --quick
      python -m reproduction allox --part simulation -o results/allox
      python -m reproduction allox --on-traces philly_jobs.csv.gz gavel_throughputs.csv.gz --document docs/reproduction-allox.md
    """
    if on_traces is None and (lacking := [part for part in parts if part in ON_DEVICES]):
        raise click.UsageError(f"for the part {lacking[0]} say where the tables are: --on-traces PHILLY RATES")
    traces = None if on_traces is None else Traces(*on_traces)
    study = (QUICK if quick else Study())._replace(jobs=jobs, traces=traces)
    if seeds is not None:
        study = study._replace(seeds=tuple(range(1, seeds + 1)))
    chosen = parts or tuple(part for part in PARTS if part not in ON_DEVICES or traces is not None)
    folder = output or Path("results") / ("allox-quick" if quick else "allox")
    wanted = {part: {point: cases(study, part, point) for point in points(part, study)} for part in chosen}
    every = [case for of in wanted.values() for point, some in of.items() if point.policy != SRPT for case in some]
    found = simulate_cases(every, folder, on, fresh, keep="all")
    looked = {part: _measure(of, found, part in CURVES) for part, of in wanted.items()}
    tables = [table for part, of in looked.items() for table in _tables(part, of, wanted[part], study)]
    show(tables, folder)
    drawn: dict[str, str] = {}
    for part, of in looked.items():
        for name, (title, figure) in _figures(part, of).items():
            save(figure, folder / "figures", name)
            drawn[name] = title
    fill_in(document, {table.name: as_markdown(table) for table in tables}, drawn, folder / "figures")
    say(Console(stderr=True), f"{folder}: tables.md, figures/")


class Looked(NamedTuple):
    """The results of the cases of a part."""

    measured: Measured
    curves: allox_figures.Curves
    """Curves of the first seed; empty if the part has no figure over time."""


def _measure(of: Mapping[Point, Sequence[Case]], found: Simulated, with_curves: bool) -> Looked:
    measured, drawn = {}, {}
    for point, some in of.items():
        what = [outcome_of(case, None if point.policy == SRPT else found[case].folder) for case in some]
        measured[point] = [measures(one) for one in what]
        if with_curves:
            drawn[point] = curves(what[0])
    return Looked(measured, drawn)


def _tables(part: Part, of: Looked, wanted: Mapping[Point, Sequence[Case]], study: Study) -> list[Table]:
    if part == "experiment":
        return [allox_tables.experiment(of.measured, study)]
    if part == "simulation":
        count = len(job_list(wanted[allox_tables.ALLOX][0]))
        return [allox_tables.claims(of.measured), allox_tables.simulation(of.measured, count, study, Study())]
    if part == "starvation":
        return [allox_tables.starvation(of.measured, len(study.varied_seeds))]
    if part in ON_DEVICES:
        return [allox_tables.devices(of.measured, part, len(job_list(wanted[allox_tables.ALLOX][0])))]
    if part == "rates":
        return [allox_rates.table(of.measured, study)]
    if part == "alpha":
        return [allox_tables.by_alpha(of.measured, len(study.varied_seeds))]
    return [allox_tables.sensitivity_table(of.measured, part, len(study.varied_seeds))]


def _figures(part: Part, of: Looked) -> dict[str, tuple[str, Figure]]:
    """Title and figure, by name."""
    if part == "experiment":
        return {"figure-11": ("Mean completion times on the experiment's cluster", allox_figures.experiment(of.measured))}
    if part == "simulation":
        return {
            "figure-13": ("Mean completion times in the simulation", allox_figures.simulation(of.measured)),
            "figure-14": ("Arrivals, completion times and disparity over time", allox_figures.over_time(of.curves)),
        }
    if part == "starvation":
        return {"figure-15": ("Completed jobs of the user with the longest jobs", allox_figures.starvation(of.curves))}
    if part in ON_DEVICES:
        return {
            f"figure-{part}": (
                f"Mean completion times of {allox_tables.DEVICE_TITLES[part]}",
                allox_figures.devices(of.measured),
            )
        }
    if part == "rates":
        return {"figure-rates": ("Completion time and disparity by the rate of arrivals", allox_rates.figure(of.measured))}
    if part == "alpha":
        return {"figure-16": ("Completion time and disparity by alpha", allox_figures.by_alpha(of.measured))}
    name, title = ("figure-17", "errors of the estimates") if part == "errors" else ("figure-18", "costs of profiling")
    return {name: (f"Mean completion times with {title}", allox_figures.sensitivity_figure(of.measured, part))}
