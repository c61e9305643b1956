"""Makes the tables and figures of the documents again: `make reproduce`, or `make reproduce ONLY=gandiva/slicing`.

Each part is a command of `python -m reproduction`. With `--small` it is made at a small size, into tests/sim/data/small_tables,
which `make test-long` makes again and compares: a difference there says which tables in the documents are out of date.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from reproduction import studies

HERE = Path(__file__).parents[1]
SMALL_TABLES = HERE / "tests" / "sim" / "data" / "small_tables"
PHILLY, OPENB = "philly_jobs.csv.gz", "alibaba_openb_pods.csv.gz"
RATES, PAIRS = "gavel_throughputs.csv.gz", "gavel_colocated.csv.gz"


class Part(NamedTuple):
    study: str
    """The command of `python -m reproduction`."""
    name: str
    """The value of its option --part; empty: the study has one part."""
    document: str
    small: tuple[str, ...] = ("--quick",)
    more: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    """The option that takes traces, and their files."""

    def __str__(self) -> str:
        return f"{self.study}/{self.name}" if self.name else self.study

    def arguments(self, traces: Path, small: bool) -> list[str]:
        """For `python -m reproduction`."""
        option, *files = self.traces or ("",)
        given = [option, *(str(traces / file) for file in files)] if option else []
        part = ["--part", self.name] if self.name else []
        return [self.study, *part, *given, *(self.small if small else self.more)]


def _parts() -> list[Part]:
    fitgpp, allox, gandiva = "docs/reproduction.md", "docs/reproduction-allox.md", "docs/reproduction-gandiva.md"
    hived = (*(f"figure-{n}" for n in ("6", "7a", "7b", "8", "9", "10", "11", "12")), "table-4", "table-5")
    philly_openb, devices = ("--on-traces", PHILLY, OPENB), ("--on-traces", PHILLY, RATES)
    return [
        *(Part("fitgpp", part, fitgpp) for part in ("tables", "s", "P", "trials", "grace")),
        Part("fitgpp", "traces", fitgpp, traces=philly_openb),
        *(Part("hived", part, fitgpp, ("--share", "0.02", "--samples", "1")) for part in hived),
        Part("hived", "traces", fitgpp, ("--share", "0.02"), ("--share", "0.3"), ("--on-traces", PHILLY)),
        *(Part("allox", p, allox) for p in ("experiment", "simulation", "starvation", "alpha", "errors", "profiling", "rates")),
        *(Part("allox", part, allox, traces=devices) for part in ("devices", "busy-devices")),
        *(Part("gandiva", p, gandiva) for p in ("slicing", "growing", "experiment", "trace", "search", "shared")),
        Part("gandiva", "measured", gandiva, traces=("--on-traces", PHILLY, RATES, PAIRS)),
        Part("packing", "", "docs/reproduction-packing.md", traces=("--rates", RATES, PAIRS)),
        Part("together", "", "docs/choosing-a-policy.md", traces=("--traces", PHILLY, RATES, PAIRS)),
        *(Part("scores", p, "docs/scores.md", traces=philly_openb) for p in ("tried", "held-out", "in-flight")),
    ]


PARTS = _parts()


def chosen(only: Sequence[str]) -> list[Part]:
    """The parts with these names, or of these studies; all of them if none is named. Raises ValueError for an unknown name."""
    names = {str(part) for part in PARTS} | {part.study for part in PARTS}
    if unknown := [name for name in only if name not in names]:
        raise ValueError(f"there is no part {unknown[0]!r}; there are {', '.join(map(str, PARTS))}")
    return [part for part in PARTS if not only or str(part) in only or part.study in only]


def small_table(part: Part, traces: Path) -> str:
    """The tables of a part at a small size, as Markdown. Raises CalledProcessError if it cannot be made."""
    with tempfile.TemporaryDirectory() as folder:
        _simulate([*part.arguments(traces.absolute(), True), "-o", folder])
        return (Path(folder) / "tables.md").read_text(encoding="utf-8")


def small_file(part: Part) -> Path:
    """Return the file of the small tables of this part."""
    return SMALL_TABLES / f"{str(part).replace('/', '-')}.md"


def _simulate(arguments: Sequence[str]) -> None:
    subprocess.run([sys.executable, "-m", "reproduction", *arguments], check=True, cwd=HERE)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("only", metavar="[PART]...", nargs=-1)
@click.option("--traces", type=click.Path(path_type=Path), default="traces", show_default=True, help="Folder with the traces.")
@click.option("--small", is_flag=True, help="At a small size, for the tests.")
@click.option("--list", "names_only", is_flag=True, help="Print the names of the parts.")
def main(only: tuple[str, ...], traces: Path, small: bool, names_only: bool) -> None:
    """Make the tables and figures of the documents again.

    Without a PART (such as gandiva/slicing, or gandiva for all of its parts) all are made, which takes many hours. What is
    made takes its place in the documents, with the commit that made it. docs/workloads.md says where the traces are from.
    """
    try:
        parts = chosen(only)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if names_only:
        click.echo("\n".join(map(str, parts)))
        return
    if lacking := [file for part in parts for file in part.traces[1:] if not (traces / file).exists()]:
        raise click.UsageError(f"{traces} has no {lacking[0]}: name the folder that has it, make reproduce TRACES=FOLDER")
    commit = studies.commit(HERE / "README.md")
    for part in parts:
        click.echo(f"== {part}", err=True)
        if small:
            SMALL_TABLES.mkdir(exist_ok=True)
            small_file(part).write_text(small_table(part, traces), encoding="utf-8")
        else:
            folder = Path("results") / commit / part.study  # simulations that other code has made are not used
            more = ["--fresh"] if commit.endswith("-dirty") and part.study != "packing" else []
            _simulate([*part.arguments(traces.absolute(), False), "-o", str(folder), "--document", part.document, *more])


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
