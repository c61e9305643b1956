"""Functions shared by all studies: simulating many cases, keeping results, and showing tables on a terminal and in a document.

A document has a pair of comments for each part, `<!-- begin: table-1 -->` and `<!-- end: table-1 -->`; the study writes the
text between them, so that no number in it is typed by hand.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from typing import NamedTuple

from rich.console import Console

from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.experiments.commands import say, warnings
from scheduler_service.sim.experiments.estimates import Estimate, Group, group_summaries
from scheduler_service.sim.experiments.kept_results import Keep, Summary
from scheduler_service.sim.experiments.runner_port import BadAddress
from scheduler_service.sim.experiments.sweep import Stopped, SweepFailed, sweep
from scheduler_service.sim.experiments.tables import lay_out
from scheduler_service.sim.progress import Screen, length

Simulated = Mapping[Case, Summary]


def simulate_cases(cases: Iterable[Case], folder: Path, on: str, fresh: bool, keep: Keep = "summary") -> Simulated:
    """Simulate the cases that are not in the folder yet. On an error, print it and exit like `ebb-sim run`."""
    notes, different = Console(stderr=True), list(dict.fromkeys(cases))
    try:
        with Screen(notes) as screen:
            summaries = sweep(different, folder, on, keep=keep, fresh=fresh, watch=screen)
    except (BadAddress, OSError) as error:
        say(notes, f"python -m reproduction: {error}")
        sys.exit(2)
    except Stopped as stopped:
        say(notes, f"python -m reproduction: stopped; {stopped} in {folder}. Run the same command to continue.")
        sys.exit(130)
    except SweepFailed as error:
        say(
            notes,
            f"python -m reproduction: {len(error.failures)} of {len(different)} simulations failed; run it again to retry them",
        )
        sys.exit(1)
    for line in warnings(summaries):
        say(notes, line)
    took = length(sum(summary.took_s for summary in summaries))
    say(notes, f"{len(summaries)} simulations in {folder} ({took} of one core)")
    return dict(zip(different, summaries, strict=True))


def group(found: Simulated, cases: Sequence[Case]) -> Group:
    """The results of one policy on one workload, with every set."""
    (one,) = group_summaries({found[cases[0]].folder: [found[case] for case in cases]})
    return one


# ---- what comes of them ----------------------------------------------------------------------------------------------


class Table(NamedTuple):
    name: str
    """The name of its place in a document."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    note: str = ""


def number(value: float | None) -> str:
    """Format with three significant digits, as the paper prints them."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def estimate_text(estimate: Estimate | None, scale: float = 1) -> str:
    """Format the mean and half of its interval."""
    if estimate is None:
        return "-"
    half = "" if estimate.half is None else f" ± {estimate.half * scale:.2g}"
    return number(estimate.mean * scale) + half


def as_markdown(table: Table) -> str:
    head = f"| | {' | '.join(table.columns)} |\n|---|{'---:|' * len(table.columns)}\n"
    body = "".join(f"| {label} | {' | '.join(cells)} |\n" for label, cells in table.rows)
    return f"**{table.title}**\n\n{head}{body}" + (f"\n{table.note}\n" if table.note else "")


def show(tables: Iterable[Table], folder: Path, more: str = "") -> None:
    """Print the tables and write them to tables.md in the folder, followed by `more`."""
    made, console = list(tables), Console(highlight=False)
    for table in made:
        lay_out(console, table.title, table.columns, {label: list(cells) for label, cells in table.rows})
        if table.note:
            console.print(table.note, style="dim", highlight=False, markup=False)
    (folder / "tables.md").write_text("\n".join(map(as_markdown, made)) + more, encoding="utf-8")


class BadDocument(Exception):
    """The document has no place for a part; the message says for which."""


def fill_in(document: Path | None, parts: Mapping[str, str], drawn: Mapping[str, str], folder: Path) -> None:
    """Put the parts, and the figures `drawn` in the folder (name -> title), into the document and next to it, if there is one.
    Each part names the commit that made it, and the processor time of the command except for kept results. On an error, print
    it and exit with status 2."""
    if document is None:
        return
    beside = document.with_suffix("")
    figures = {name: f"![{title}]({beside.name}/{name}.svg)\n" for name, title in drawn.items()}
    try:
        made = f"\n*Made by commit {commit(document)}, in {length(sum(os.times()[:4]))} of processor time.*\n"
        placed = {name: text + made for name, text in {**parts, **figures}.items()}
        document.write_text(filled_in(document.read_text(encoding="utf-8"), placed), encoding="utf-8")
        if drawn:
            beside.mkdir(exist_ok=True)
        for name in drawn:
            copyfile(folder / f"{name}.svg", beside / f"{name}.svg")
    except (BadDocument, OSError) as error:
        say(Console(stderr=True), f"python -m reproduction: {document}: {error}")
        sys.exit(2)


def commit(document: Path) -> str:
    """The commit of the document's checkout, with `-dirty` if files in it were changed."""
    asked = ["git", "-C", str(document.absolute().parent), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=8"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "(unknown)"


def filled_in(document: str, parts: Mapping[str, str]) -> str:
    """Return the document with these parts in their places and the others unchanged. Raises BadDocument."""
    for name, text in parts.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if not place.search(document):
            raise BadDocument(f"there is no place for {name} in it, between {begin} and {end}")
        document = place.sub(lambda _, said=f"{begin}\n{text}{end}": said, document, count=1)  # type: ignore[misc]
    return document
