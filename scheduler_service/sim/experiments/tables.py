"""Results as tables: a row for each policy, numbers with the half-width of their interval, and no number ever cut off."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scheduler_service.sim.experiments.estimates import Estimate, Group

CLASS_NAMES = {"trial": "trials", "best_effort": "best-effort jobs"}
RESOURCES = {"gpu": "GPUs", "cpu": "CPUs", "memory": "memory"}


class Column(NamedTuple):
    title: str
    metric: str
    scale: float = 1
    digits: int = 2
    rare: bool = False
    """Left out if it is 0 for all policies: most sites do not have it."""


class Shape(NamedTuple):
    """The title and the columns of a table."""

    title: str
    columns: tuple[Column, ...]


def _spread(
    metric: str, title: str, per_class: str, quantiles: Sequence[int], scale: float = 1, digits: int = 2
) -> list[Shape]:
    return [
        Shape(
            f"{title}: {CLASS_NAMES[name]}{per_class}",
            (
                Column("mean", f"{name}.{metric}.mean", scale, digits),
                *(Column(f"p{q}", f"{name}.{metric}.p{q}", scale, digits) for q in quantiles),
            ),
        )
        for name in CLASS_NAMES
    ]


def _gpu_hours(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, f"gpu_h.{name}", 1, 0, rare=name in ("ending", "hanging", "down")) for name in names)


SHAPES: dict[str, list[Shape]] = {
    "slowdown": _spread("slowdown", "Slowdown", "", (50, 95, 99)),
    "wait": _spread("wait_s", "Wait in minutes", "", (50, 95, 99), 1 / 60, 1),
    "completion": _spread("completion_s", "From submit to end in minutes", "", (50, 95, 99), 1 / 60, 1),
    "preemptions": [
        Shape(
            "Jobs preempted, in % of all jobs",
            (
                Column("ever", "preempted.share", 100),
                Column("once", "preempted.once", 100),
                Column("twice", "preempted.twice", 100),
                Column("3 times or more", "preempted.more", 100, 3),
            ),
        ),
        Shape(
            "From a preemption to the next start, in minutes",
            (
                Column("mean", "interval_s.mean", 1 / 60),
                *(Column(f"p{q}", f"interval_s.p{q}", 1 / 60, 1) for q in (50, 75, 95, 99)),
            ),
        ),
        Shape(
            "Told to leave cells for those who have a right to them",
            (
                Column("runs", "reclaimed", 1, 0, rare=True),
                Column("jobs, in % of all", "reclaimed.share", 100, rare=True),
            ),
        ),
    ],
    "queue": [
        Shape(
            "Jobs in the queue",
            (
                Column("mean", "queue.mean", 1, 1),
                Column("p95", "queue.p95", 1, 0),
                Column("most", "queue.max", 1, 0),
                Column("mean, trials", "trial.queue.mean", 1, 1),
            ),
        )
    ],
    "utilisation": [
        Shape(
            "In use, in % of the cluster, while jobs came",
            tuple(Column(title, f"utilisation.{name}.arrivals", 100, 1) for name, title in RESOURCES.items()),
        ),
        Shape(
            "In use, in % of the cluster, to the end of the last job",
            (
                *(Column(title, f"utilisation.{name}", 100, 1) for name, title in RESOURCES.items()),
                Column("hours in all", "makespan_h", 1, 1),
            ),
        ),
    ],
    "sharing": [
        Shape(
            "Shared GPUs",
            (
                Column("utilisation in %", "sharing.utilisation.arrivals", 100, 1),
                Column("rate in %", "sharing.rate.arrivals", 100, 1),
                Column("100 mini-batches in minutes", "sharing.early_s.mean", 1 / 60, 1),
                Column("parks", "sharing.parks", 1, 0),
                Column("packings", "sharing.packings", 1, 0),
                Column("undone", "sharing.unpackings", 1, 0),
                Column("GPU-hours of switching", "sharing.switching_gpu_h", 1, 2),
            ),
        )
    ],
    "cost": [Shape("GPU-hours", _gpu_hours("useful", "grace", "lost", "starting", "ending", "hanging", "down", "idle"))],
    "fairness": [
        Shape(
            f"Fairness between {name} (Jain's index: 1 where all have the same)",
            (
                Column("slowdown", f"fairness.{kind}.slowdown", 1, 3),
                Column("share of GPU time", f"fairness.{kind}.share", 1, 3),
                Column("worst mean slowdown", f"fairness.{kind}.slowdown.worst"),
            ),
        )
        for kind, name in (("user", "users"), ("vc", "virtual clusters"))
    ],
}


def shapes(metrics: Iterable[str], groups: Sequence[Group]) -> list[Shape]:
    """The tables of some metrics, without columns that no policy has."""
    told = [item for group in groups for numbers in group.numbers.values() for item in numbers.items()]
    known, there = {name for name, _ in told}, {name for name, value in told if value}
    found: list[Shape] = []
    for metric in metrics:
        for shape in SHAPES[metric] if metric != "vcs" else _vcs(known):
            columns = tuple(column for column in shape.columns if column.metric in (there if column.rare else known))
            if columns:
                found.append(Shape(shape.title, columns))
    return found


def _vcs(known: Iterable[str]) -> list[Shape]:
    names = sorted(
        name.removeprefix("vc.").removesuffix(".share") for name in known if name.endswith(".share") and name[:3] == "vc."
    )
    titles = [(name, name or "(none)") for name in names]
    return [
        Shape("Mean slowdown by virtual cluster", tuple(Column(title, f"vc.{name}.slowdown.mean") for name, title in titles)),
        Shape(
            "Share of the GPU time that a virtual cluster would have with no wait, in %",
            tuple(Column(title, f"vc.{name}.share", 100, 1) for name, title in titles),
        ),
    ]


def estimate_text(estimate: Estimate | None, scale: float = 1, digits: int = 2) -> str:
    if estimate is None:
        return "-"
    half = "" if estimate.half is None else f" ± {estimate.half * scale:.{digits}f}"
    return f"{estimate.mean * scale:,.{digits}f}{half}"


def change(estimate: Estimate | None) -> str:
    """Format in percent, with a sign."""
    if estimate is None:
        return "-"
    half = "" if estimate.half is None else f" ± {100 * estimate.half:.1f}"
    return f"{100 * estimate.mean:+.1f}{half} %"


def show(console: Console, groups: Sequence[Group], metrics: Iterable[str], against: Group | None = None) -> None:
    """Show tables. `against`: show the difference from that group in percent, rather than the numbers themselves."""
    shown = [group for group in groups if against is None or group is not against]
    for shape in shapes(metrics, groups):
        if against is None:
            cells = [[estimate_text(group.estimate(c.metric), c.scale, c.digits) for c in shape.columns] for group in shown]
        else:
            cells = [[change(group.change(c.metric, against)) for c in shape.columns] for group in shown]
        title = shape.title if against is None else f"{shape.title}: against {against.label}"
        lay_out(console, title, [c.title for c in shape.columns], {g.label: row for g, row in zip(shown, cells, strict=True)})


def lay_out(console: Console, title: str, columns: Sequence[str], rows: dict[str, list[str]]) -> None:
    """Print as a table or, if that would not fit, line by line: a number that is cut off would be another number."""
    console.print()
    console.print(title, style="bold", soft_wrap=True, highlight=False, markup=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(Text(column), justify="right", no_wrap=True)
    for label, cells in rows.items():
        table.add_row(Text(label), *cells)
    if console.measure(table, options=console.options.update(width=10_000)).maximum <= console.width:
        console.print(table)
        return
    for label, cells in rows.items():
        console.print(f"  {label}", soft_wrap=True, highlight=False, markup=False)
        for column, cell in zip(columns, cells, strict=True):
            console.print(f"    {column}: {cell}", soft_wrap=True, highlight=False, markup=False)
