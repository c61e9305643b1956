"""`python -m reproduction gandiva`: reproduces the evaluation of the Gandiva paper (docs/reproduction-gandiva.md)."""

from pathlib import Path

import click
from rich.console import Console

from reproduction.gandiva import growing as gandiva_growing
from reproduction.gandiva import searches as gandiva_searches
from reproduction.gandiva import shared as gandiva_shared
from reproduction.gandiva import tables as gandiva_tables
from reproduction.gandiva.plan import (
    ALL_PARTS,
    GANDIVA,
    ON_TRACES,
    PARTS,
    QUICK,
    Study,
    Traces,
    cases,
    policies,
)
from reproduction.studies import Table, as_markdown, fill_in, group, show, simulate_cases
from scheduler_service.sim.experiments.commands import say
from scheduler_service.sim.experiments.figures import save

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("gandiva")
@click.option("--quick", is_flag=True, help="Fewer jobs, and one set of them.")
@click.option(
    "--part", "parts", type=click.Choice(ALL_PARTS), multiple=True, help="Only this part; may be given several times."
)
@click.option(
    "--on-traces",
    metavar="PHILLY RATES PAIRS",
    type=(FILE, FILE, FILE),
    help="The trace, and GPUs' throughputs alone and in pairs (docs/workloads.md).",
)
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="[default: results/gandiva, or -quick]")
@click.option("--on", metavar="WHERE", default="local", show_default=True, help="local, local[N], or tcp://HOST:PORT of Dask.")
@click.option("--fresh", is_flag=True, help="Simulate anew what is there already.")
@click.option("--document", metavar="FILE", type=FILE, help="Fill in the tables of this Markdown file.")
def command(
    quick: bool,
    parts: tuple[str, ...],
    on_traces: tuple[Path, Path, Path] | None,
    output: Path | None,
    on: str,
    fresh: bool,
    document: Path | None,
) -> None:
    """Figures 9, 11, 14, 15 and 18 and tables 3 to 5 of the Gandiva paper (OSDI 2018), next to the numbers that it prints.

    The parts are six jobs on four GPUs, an elastic job that grows and shrinks, the experiment on 180 GPUs, the trace of 9 days
    on 100 GPUs, searches for the right configuration among many, by themselves and on a loaded cluster, and, if files are
    given, jobs of Philly's trace at rates that were measured on real GPUs.

    \b
    Examples:
      python -m reproduction gandiva --quick
      python -m reproduction gandiva --part slicing
      python -m reproduction gandiva --on-traces philly_jobs.csv.gz gavel_throughputs.csv.gz gavel_colocated.csv.gz
    """
    if on_traces is None and (lacking := [part for part in parts if part in ON_TRACES]):
        raise click.UsageError(f"for the part {lacking[0]} say where the tables are: --on-traces PHILLY RATES PAIRS")
    traces = None if on_traces is None else Traces(*on_traces)
    study = (QUICK if quick else Study())._replace(traces=traces)
    chosen = parts or tuple(part for part in ALL_PARTS if part not in ON_TRACES or traces is not None)
    folder = output or Path("results") / ("gandiva-quick" if quick else "gandiva")
    wanted = {part: {policy: cases(study, part, policy) for policy in policies()} for part in PARTS if part in chosen}
    searches = gandiva_searches.cases(study.search_seeds, quick) if "search" in chosen else {}
    growing = wanted.pop("growing", {})
    days, at_min = study.shared_days, study.shared_at_min
    shared = gandiva_shared.cases(days, at_min, study.shared_seeds) if "shared" in chosen else {}
    every = [case for of in (*wanted.values(), *searches.values(), shared) for some in of.values() for case in some]
    found = simulate_cases(every, folder, on, fresh, keep="jobs") if every else {}
    tables: list[Table] = []
    drawn: dict[str, str] = {}
    if growing:
        runs = simulate_cases([case for some in growing.values() for case in some], folder / "growing", on, fresh, keep="all")
        timelines = gandiva_growing.timelines(runs, growing)
        tables.append(gandiva_growing.table(timelines))
        save(gandiva_growing.draw_gpus(timelines[GANDIVA]), folder, "growing")
        drawn["growing"] = "The GPUs of an elastic job over time"
    for part, of in wanted.items():
        groups = {policy: group(found, some) for policy, some in of.items()}
        if part == "slicing":
            shares = {policy: gandiva_tables.shares(found[some[0]].folder) for policy, some in of.items() if policy != "fifo"}
            sharing = {policy: one for policy, one in groups.items() if policy in shares}
            tables.append(gandiva_tables.slicing(sharing, shares))
        elif part == "experiment":
            tables.append(gandiva_tables.experiment(groups, study.jobs))
            if (claims := gandiva_tables.claims(groups)) is not None:
                tables.append(claims)
        else:
            title = "Table 5: 9 days on 100 GPUs" if part == "trace" else "Philly's jobs at Gavel's rates, on 100 GPUs"
            tables.append(gandiva_tables.trace(groups, part, title, printed=part == "trace"))
    if searches:
        sought = gandiva_searches.groups(found, searches)
        tables += gandiva_searches.tables(sought)
        save(gandiva_searches.draw_explored(sought), folder, "explored")
        drawn["explored"] = "Explored configurations over time"
    if shared:
        tables.append(gandiva_shared.table({policy: group(found, some) for policy, some in shared.items()}))
    show(tables, folder)
    fill_in(document, {table.name: as_markdown(table) for table in tables}, drawn, folder)
    say(Console(stderr=True), f"{folder}: tables.md")
