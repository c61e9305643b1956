"""`python -m reproduction fitgpp`: reproduces the evaluation of the FitGpp paper (docs/reproduction.md)."""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from reproduction.fitgpp.figures import FIGURES
from reproduction.fitgpp.plan import PARTS, QUICK, Point, Study, Traces, cases, points
from reproduction.fitgpp.published import FITTED
from reproduction.fitgpp.tables import tables, trace_tables
from reproduction.studies import Table, as_markdown, fill_in, group, show, simulate_cases
from scheduler_service.sim.experiments.commands import say
from scheduler_service.sim.experiments.estimates import Group
from scheduler_service.sim.experiments.figures import save, slowdown

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("fitgpp")
@click.option("--quick", is_flag=True, help="One set of 2^12 jobs, in a minute or two; too few for queues to grow.")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this part; may be given several times.")
@click.option("--on-traces", metavar="PHILLY OPENB", type=(FILE, FILE), help="The same policies on these traces, too.")
@click.option("--sets", metavar="N", type=click.IntRange(1), help="Sets of jobs for the tables and figure 3.  [default: 8]")
@click.option("--figure-sets", metavar="N", type=click.IntRange(1), help="Sets of jobs for figures 4 to 7.  [default: 8]")
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="[default: results/fitgpp, or -quick]")
@click.option("--on", metavar="WHERE", default="local", show_default=True, help="local, local[N], or tcp://HOST:PORT of Dask.")
@click.option("--fresh", is_flag=True, help="Simulate anew what is there already.")
@click.option(
    "--document", metavar="FILE", type=FILE, help="Fill in the tables of this Markdown file, and put figures beside it."
)
def command(
    quick: bool,
    parts: tuple[str, ...],
    on_traces: tuple[Path, Path] | None,
    sets: int | None,
    figure_sets: int | None,
    output: Path | None,
    on: str,
    fresh: bool,
    document: Path | None,
) -> None:
    """Tables 1-4 and figures 3-7 of the FitGpp paper (Yabuuchi et al., 2019), next to the numbers that it prints.

    The parts are the tables with figure 3, and figures 4 (s), 5 (P), 6 (trials) and 7 (grace); and traces, if they are given.
    Ctrl-C loses nothing but the simulations in progress: run the same command to continue.

    \b
    Examples:
      python -m reproduction fitgpp --quick
      python -m reproduction fitgpp --part tables -o results/fitgpp
      python -m reproduction fitgpp --on-traces philly_jobs.csv.gz openb_pods.csv.gz --document docs/reproduction.md
    """
    if "traces" in parts and on_traces is None:
        raise click.UsageError("for the part traces say where they are: --on-traces PHILLY OPENB")
    study = (QUICK if quick else Study())._replace(
        **{name: value for name, value in (("sets", sets), ("figure_sets", figure_sets)) if value is not None},
        traces=None if on_traces is None else Traces(*on_traces),
    )
    chosen = parts or tuple(part for part in PARTS if part != "traces" or on_traces is not None)
    folder = output or Path("results") / ("fitgpp-quick" if quick else "fitgpp")
    groups = _simulate(study, chosen, folder, on, fresh)
    said = _tables(study, groups, folder)
    fill_in(document, said, _figures(study, groups, folder / "figures"), folder / "figures")
    say(Console(stderr=True), f"{folder}: tables.md, figures/")


Groups = dict[str, dict[Point, Group]]
"""Groups of results by part of the evaluation."""


def _simulate(study: Study, parts: Sequence[str], folder: Path, on: str, fresh: bool) -> Groups:
    wanted = {part: {point: list(cases(study, part, point)) for point in points(part)} for part in parts}
    found = simulate_cases((case for by_point in wanted.values() for of in by_point.values() for case in of), folder, on, fresh)
    return {part: {point: group(found, of) for point, of in by_point.items()} for part, by_point in wanted.items()}


def _tables(study: Study, groups: Groups, folder: Path) -> dict[str, str]:
    """Show the tables and write them as Markdown; return the texts for a document, by their places in it."""
    made: list[Table] = []
    if "tables" in groups:
        runs = f", {study.repeats} runs of RAND on each" if study.repeats > 1 else ""
        spread = "means over the sets, ± half a 95 % interval" if study.sets > 1 else "nothing says how far chance goes"
        made += [
            table._replace(note=f"Ebb: {_amount(study.sets, study)}{runs}; {spread}.") for table in tables(groups["tables"])
        ]
    if "traces" in groups:
        sets = f" Means over {study.trace_sets} sets of what is assumed." if study.trace_sets > 1 else ""
        made += [table._replace(note=table.note + sets) for table in trace_tables(groups["traces"])]
    fitted = "".join(f"* {line}\n" for line in FITTED)
    show(made, folder, f"\nFitted:\n\n{fitted}")
    Console(highlight=False).print(
        f"\nAssumed, for the paper does not say; fitted to what it prints:\n{fitted}", style="dim", markup=False, soft_wrap=True
    )
    return {"fitted": fitted, **{table.name: as_markdown(table) for table in made}}


def _amount(sets: int, study: Study) -> str:
    return f"{sets} set{'s' if sets > 1 else ''} of {study.jobs:,} jobs"


def _figures(study: Study, groups: Groups, folder: Path) -> dict[str, str]:
    """Draw the figures; return their titles by name."""
    titles: dict[str, str] = {}
    for name, (part, title, draw) in FIGURES.items():
        if part in groups:
            save(draw(groups[part]), folder, name)
            titles[name] = f"{title}: {_amount(study.sets if part == 'tables' else study.figure_sets, study)}"
    for trace in Traces._fields if "traces" in groups else ():
        figure = slowdown([of for point, of in groups["traces"].items() if point.trace == trace])
        assert figure is not None  # there are jobs
        save(figure, folder, f"figure-{trace}")
        titles[f"figure-{trace}"] = f"Slowdown at each percentile of the jobs: {trace}"
    return titles
