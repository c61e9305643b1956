"""What the studies of `ebb-sim reproduce` have in common: many cases are simulated and looked up again, and what comes of them
is shown."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shutil import copyfile

from rich.console import Console

from scheduler_service.sim.cases import Case
from scheduler_service.sim.commands import say, warnings
from scheduler_service.sim.estimates import Group, grouped
from scheduler_service.sim.kept_results import Keep, Summary
from scheduler_service.sim.progress import Screen, length
from scheduler_service.sim.reproduce.laid_out import BadDocument, Table, as_figure, joined, on_terminal, write_into
from scheduler_service.sim.runner_port import BadAddress
from scheduler_service.sim.sweep import Stopped, SweepFailed, sweep

Simulated = Mapping[Case, Summary]


def simulated(cases: Iterable[Case], folder: Path, on: str, fresh: bool, keep: Keep = "summary") -> Simulated:
    """Simulates those that are not in the folder yet. Where something is amiss it says so, and leaves with the status that
    `ebb-sim run` has, too."""
    notes, different = Console(stderr=True), list(dict.fromkeys(cases))
    try:
        with Screen(notes) as screen:
            summaries = sweep(different, folder, on, keep=keep, fresh=fresh, watch=screen)
    except (BadAddress, OSError) as error:
        say(notes, f"ebb-sim: {error}")
        sys.exit(2)
    except Stopped as stopped:
        say(notes, f"ebb-sim: stopped; {stopped} in {folder}. The same command goes on from there.")
        sys.exit(130)
    except SweepFailed as error:
        say(notes, f"ebb-sim: {len(error.failures)} of {len(different)} simulations failed; the same command tries them again")
        sys.exit(1)
    for line in warnings(summaries):
        say(notes, line)
    took = length(sum(summary.took_s for summary in summaries))
    say(notes, f"{len(summaries)} simulations in {folder} ({took} of one core)")
    return dict(zip(different, summaries, strict=True))


def group(found: Simulated, cases: Sequence[Case]) -> Group:
    """Of one policy on one workload, with every set."""
    (one,) = grouped({found[cases[0]].folder: [found[case] for case in cases]})
    return one


def show(tables: Iterable[Table], folder: Path, more: str = "") -> None:
    """Prints the tables, and writes them to tables.md in the folder, with what there is `more` to say."""
    made, console = list(tables), Console(highlight=False)
    for table in made:
        on_terminal(console, table)
    (folder / "tables.md").write_text(joined(made) + more, encoding="utf-8")


def fill_in(document: Path | None, parts: Mapping[str, str], drawn: Mapping[str, str], folder: Path) -> None:
    """Puts the parts, and the figures that were `drawn` in the folder (name -> title), into the document and beside it, if
    there is one. Where that cannot be done it says so, and leaves with status 2."""
    if document is None:
        return
    beside = document.with_suffix("")
    try:
        write_into(document, {**parts, **{name: as_figure(name, title, beside.name) for name, title in drawn.items()}})
        if drawn:
            beside.mkdir(exist_ok=True)
        for name in drawn:
            copyfile(folder / f"{name}.svg", beside / f"{name}.svg")
    except (BadDocument, OSError) as error:
        say(Console(stderr=True), f"ebb-sim: {document}: {error}")
        sys.exit(2)
