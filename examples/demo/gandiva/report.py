"""The tables at the end of the show."""

from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console
from rich.table import Table

from examples.demo.gandiva.acts import Move, Packing, Sizes, Turns
from examples.demo.gandiva.cluster import GAIN


def report(
    turns: Sequence[Turns], packings: Sequence[Packing], move: Move, sizes: Sequence[Sizes], seconds: float, console: Console
) -> None:
    """Prints what was measured."""
    _heading("Turns: two jobs on one device", console)
    table = _table("JOBS", "STEPS/S>", "STEPS AT A TIME>")
    for each in turns:
        table.add_row(" and ".join(each.jobs), " and ".join(f"{rate:.1f}" for rate in each.rates), f"{each.in_a_row:.0f}")
    console.print(table)

    _heading(f"Packing: kept if the device does more than {1 + GAIN / 100:.2f} times the work", console)
    table = _table("TWO OF", "IN TURNS>", "PACKED>", "WORK, AS JUDGED>", "VERDICT")
    for one in packings:
        rates = f"{one.in_turns:.1f} steps/s", f"{one.packed:.1f} steps/s"
        table.add_row(one.kind, *rates, f"{one.ratio:.2f} times", "kept" if one.kept else "undone")
    console.print(table)
    _note("IN TURNS and PACKED are from the step logs, of both jobs together. The scheduler judges by the agents'", console)
    _note("mini-batch times.", console)

    _heading("The move, and the elastic job", console)
    table = _table("JOB", "WHAT", "MEASURED")
    measured = f"without a step for {move.seconds:.1f} s; step {move.step} follows step {move.step - 1}"
    table.add_row(move.job, f"{move.source} -> {move.target}", measured)
    for before, after in pairwise(sizes):
        what = f"{before.tasks} -> {after.tasks} devices"
        table.add_row("elastic", what, f"{before.rate:.1f} -> {after.rate:.1f} parts of steps/s")
    console.print(table)
    console.print(f"\nall of this happened; {seconds:.1f} s", style="bold green", highlight=False)


def _heading(text: str, console: Console) -> None:
    console.print(f"\n{text}", style="bold", highlight=False)


def _note(text: str, console: Console) -> None:
    console.print(text, style="dim", highlight=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    """Columns whose names end with > are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    return table
