"""`python -m reproduction packing`: pairs that probing packs, against the best possible (docs/reproduction-packing.md)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, get_args

import click
from matplotlib.figure import Figure
from rich.console import Console

from reproduction.packing_mixes import Best, Mix, Pairs, Rule, Seen, best, mixes, pairs_of, play
from reproduction.studies import Table, as_markdown, estimate_text, fill_in, show
from scheduler_service.sim.experiments.commands import say
from scheduler_service.sim.experiments.estimates import estimate
from scheduler_service.sim.experiments.figures import lines, save, sheet
from scheduler_service.sim.sharing.measured import tables
from scheduler_service.sim.workloads import BadTrace

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
RULES: Mapping[Rule, str] = {
    "random": "pairs at random",
    "group": "lowest utilisation, judged by the group",
    "utilisation": "lowest utilisation, judged by the pair",
    "learnt": "pairs that paid first",
    "moved": "the same, of all jobs (pack_moves)",
}
MODELS = ("p100", "v100")
"""The GPU models. On a K80 only one pair of kinds in thirty gains more than 5 %."""
COLUMNS = ("work", "probes", "undone", "lost", "moves", "gain, % of the best on each GPU")


class Study(NamedTuple):
    seeds: int = 5
    mixes: int = 30
    devices: int = 4
    jobs: tuple[int, ...] = (4, 8)
    """Jobs on each device."""
    first: int = 5
    """The number of mixes in the first table."""
    last: int = 15


QUICK = Study(seeds=2, mixes=12, devices=4, jobs=(4,), first=3, last=4)


class Setting(NamedTuple):
    model: str
    jobs: int

    @property
    def title(self) -> str:
        return f"{self.model.upper()}, {self.jobs} jobs on each"


class Results(NamedTuple):
    """Results of each seed, with the mixes in order."""

    best: Sequence[Sequence[Best]]
    seen: Mapping[Rule, Sequence[Sequence[Seen]]]


@click.command("packing")
@click.option("--rates", metavar="RATES PAIRS", type=(FILE, FILE), required=True, help="Throughputs alone, and in pairs.")
@click.option("--quick", is_flag=True, help="Fewer mixes of fewer jobs.")
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), default="results/packing", show_default=True)
@click.option("--document", metavar="FILE", type=FILE, help="Fill in the tables of this Markdown file.")
def command(rates: tuple[Path, Path], quick: bool, output: Path, document: Path | None) -> None:
    """Pairs that probing packs on random mixes of jobs, against the best possible pairs.

    \b
    Example:
      python -m reproduction packing --rates gavel_throughputs.csv.gz gavel_colocated.csv.gz
    """
    study, notes = QUICK if quick else Study(), Console(stderr=True)
    try:
        found = tables(*rates)
    except BadTrace as error:
        raise click.UsageError(str(error)) from error
    output.mkdir(parents=True, exist_ok=True)
    results: dict[Setting, Results] = {}
    for setting in (Setting(model, jobs) for model in MODELS for jobs in study.jobs):
        results[setting] = simulate(pairs_of(found, setting.model), study, setting.jobs)
        say(notes, f"{setting.title}: {study.seeds} times {study.mixes} mixes")
    made = comparison_tables(results, study)
    show(made, output)
    name = "figure-packing"
    save(draw_gains(results), output / "figures", name)
    parts = {table.name: as_markdown(table) for table in made}
    fill_in(document, parts, {name: "The part of the best gain that is reached, by the number of mixes"}, output / "figures")
    say(notes, f"{output}: tables.md, figures/")


def simulate(of: Pairs, study: Study, jobs: int) -> Results:
    drawn: list[list[Mix]] = [mixes(of, study.mixes, study.devices, jobs, seed) for seed in range(1, study.seeds + 1)]
    rules: tuple[Rule, ...] = get_args(Rule)
    return Results(
        [[best(of, mix) for mix in some] for some in drawn],
        {rule: [play(of, some, rule, seed) for seed, some in enumerate(drawn, 1)] for rule in rules},
    )


def comparison_tables(results: Mapping[Setting, Results], study: Study) -> list[Table]:
    """Tables of the first mixes, when nothing has been learned, and of the last ones."""
    size = f"{study.mixes} mixes of jobs on {study.devices} GPUs each, {study.seeds} seeds"
    note = (
        f"Per GPU; 1 is the work in turns. Lost: GPU-minutes of work, by probes that were worse than turns. {size}. ± half a "
        "95 % interval."
    )
    early, late = slice(study.first), slice(study.mixes - study.last, study.mixes)
    return [
        Table(
            "packing-first", f"The first {study.first} mixes, from which pairs are learnt", COLUMNS, _rows(results, early), note
        ),
        Table("packing-last", f"The last {study.last} mixes", COLUMNS, _rows(results, late), note),
    ]


def _rows(results: Mapping[Setting, Results], of: slice) -> tuple[tuple[str, tuple[str, ...]], ...]:
    rows: list[tuple[str, tuple[str, ...]]] = []
    for setting, found in results.items():
        theirs = [some[of] for some in found.best]
        for rule, every in found.seen.items():
            seen = [some[of] for some in every]
            gained = estimate_text(estimate([_gain_share(mine, best) for mine, best in zip(seen, theirs, strict=True)]), 100)
            numbers = (_mean([[getattr(one, name) for one in some] for some in seen]) for name in Seen._fields)
            rows.append((f"{setting.title}: {RULES[rule]}", (*numbers, gained)))
        here, anywhere = ([[getattr(one, name) for one in some] for some in theirs] for name in Best._fields)
        far = estimate_text(estimate([_share(most, near) for most, near in zip(anywhere, here, strict=True)]), 100)
        rows.append((f"{setting.title}: best pairs on each GPU", (_mean(here), "", "", "", "", "100")))
        rows.append((f"{setting.title}: best pairs of all jobs", (_mean(anywhere), "", "", "", "", far)))
    return tuple(rows)


def _mean(values: Sequence[Sequence[float]]) -> str:
    """Format the mean; each seed is one sample."""
    found = estimate([fmean(some) for some in values])
    return f"{found.mean:.3f}" + ("" if found.half is None else f" ± {found.half:.3f}")


def _gain_share(seen: Sequence[Seen], theirs: Sequence[Best]) -> float:
    return _share([one.work for one in seen], [one.here for one in theirs])


def _share(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """The share of the best pairs' gain over turns."""
    return (fmean(mine) - 1) / (fmean(theirs) - 1)


def draw_gains(results: Mapping[Setting, Results]) -> Figure:
    """Draw the share of the best pairs' gain that is reached over the mixes: means over seeds, and over five mixes each."""
    figure, all_axes = sheet(len(results), 1, height=2.6 * len(results))
    for (setting, of), axes in zip(results.items(), all_axes, strict=True):
        count = len(of.best[0])
        ends = range(5, count + 1, 5)
        curves = [
            (RULES[rule], [float(end) for end in ends], [_part(seen, of.best, end - 5, end) for end in ends])
            for rule, seen in of.seen.items()
        ]
        lines(axes, curves)
        axes.set(title=setting.title, ylabel="% of the best gain")
        axes.set_ylim(0, 105)
    all_axes[-1].set_xlabel("mixes of jobs")
    all_axes[-1].legend(fontsize="small", loc="lower left")
    return figure


def _part(seen: Sequence[Sequence[Seen]], theirs: Sequence[Sequence[Best]], begin: int, end: int) -> float:
    some = [one for each in seen for one in each[begin:end]]
    return 100 * _gain_share(some, [one for each in theirs for one in each[begin:end]])
