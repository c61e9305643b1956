"""`python -m reproduction hived`: reproduces HiveD's evaluation (sections 5.2 to 5.4; docs/reproduction.md)."""

from pathlib import Path

import click
from rich.console import Console

from reproduction.hived import queueing_delay
from reproduction.hived.plan import Study, cases, needed_settings
from reproduction.hived.queueing_delay import FIGURE_6
from reproduction.hived.queueing_delay_plan import SAMPLES
from reproduction.hived.shared import SHARING, sharing_figures, sharing_tables
from reproduction.hived.simulated import see
from reproduction.hived.trace import cut_trace, trace_cases, trace_table
from reproduction.hived.traded import EXCHANGE, exchange_figures, exchange_tables
from reproduction.studies import as_markdown, fill_in, show, simulate_cases
from scheduler_service.sim.experiments.commands import say
from scheduler_service.sim.workloads import BadTrace

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
TRACES = "traces"
PARTS = (FIGURE_6, *SHARING, *EXCHANGE, TRACES)


@click.command("hived")
@click.option("--part", "parts", type=click.Choice(PARTS), multiple=True, help="Only this one; may be given several times.")
@click.option(
    "--share", metavar="PART", type=click.FloatRange(0.001, 1), default=1.0, show_default=True, help="Of the two months."
)
@click.option("--scale", type=click.FloatRange(0.01, 10), default=1.0, show_default=True, help="Of what all jobs ask for.")
@click.option(
    "--durations",
    type=click.Choice(("alike", "by-size")),
    default="alike",
    show_default=True,
    help="Of jobs of all sizes in figures 6 to 10: the same, or of each size Philly's.",
)
@click.option("--samples", type=click.IntRange(1, 1000), default=SAMPLES, show_default=True, help="Of the jobs, for figure 6.")
@click.option("--on-traces", metavar="PHILLY", type=FILE, help="The same comparison on this trace, too.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), default="results/hived", show_default=True)
@click.option("--on", metavar="WHERE", default="local", show_default=True, help="local, local[N], or tcp://HOST:PORT of Dask.")
@click.option("--fresh", is_flag=True, help="Simulate anew what is there already.")
@click.option(
    "--document", metavar="FILE", type=FILE, help="Fill in the tables of this Markdown file, and put figures beside it."
)
def command(
    parts: tuple[str, ...],
    share: float,
    scale: float,
    durations: str,
    samples: int,
    on_traces: Path | None,
    seed: int,
    output: Path,
    on: str,
    fresh: bool,
    document: Path | None,
) -> None:
    """Figures 6 to 12 and tables 4 and 5 of the HiveD paper (OSDI 2020), next to the paper's own numbers.

    Eleven tenants share 279 nodes, and 200: by quotas of GPUs, in virtual clusters, and not at all. The paper does not say when
    jobs come and how long they run; both are fitted to the numbers that it prints (docs/workloads.md). Figure 6 has three
    schedulers on 12 nodes, over ten days. The part traces needs a trace.

    \b
    Examples:
      python -m reproduction hived --share 0.1
      python -m reproduction hived --part figure-7b -o results/hived
      python -m reproduction hived --part traces --on-traces philly_jobs.csv.gz
    """
    if "traces" in parts and on_traces is None:
        raise click.UsageError("for the part traces say where it is: --on-traces PHILLY")
    study = Study(share, scale, seed, "alike" if durations == "alike" else "by_size")
    chosen = [part for part in parts or PARTS if part != TRACES or on_traces is not None]
    papers = [part for part in chosen if part not in (FIGURE_6, TRACES)]
    settings = list(dict.fromkeys(setting for part in papers for setting in needed_settings(part)))
    wanted = {setting: cases(setting, study) for setting in settings}
    try:
        trace = cut_trace(on_traces, share, output) if on_traces is not None and TRACES in chosen else None
    except BadTrace as error:
        raise click.UsageError(str(error)) from error
    of_trace = {} if trace is None else trace_cases(trace, seed)
    compared = queueing_delay.plan_cases(study, samples) if FIGURE_6 in chosen else {}
    of_schedulers = (case for taken in compared.values() for of in taken for case in of)
    every = (*of_schedulers, *(case for of in wanted.values() for case in of), *of_trace.values())
    found = simulate_cases(every, output, on, fresh, keep="all")
    known = {setting: see(of, found) for setting, of in wanted.items()}
    shared = {setting: known[setting] for part in papers if part in SHARING for setting in needed_settings(part)}
    schedulers = queueing_delay.waits(compared, found) if compared else {}
    tables = queueing_delay.tables(schedulers, study) if schedulers else []
    tables += sharing_tables(shared, study) if shared else []
    tables += exchange_tables(papers, known, study)
    tables += [] if trace is None else [trace_table(trace, of_trace, found)]
    show(tables, output)
    drawn = sharing_figures(papers, known, output / "figures") | exchange_figures(papers, known, output / "figures")
    drawn |= queueing_delay.figures(schedulers, output / "figures") if schedulers else {}
    fill_in(document, {table.name: as_markdown(table) for table in tables}, drawn, output / "figures")
    say(Console(stderr=True), f"{output}: tables.md, figures/")
