"""`python -m benchmarks.compare BASE NAME ...`: runs benches of a base commit and of this checkout in alternation.

Prints the ratios of what they measure. Each side runs its own benchmark code in its own environment: the base in a work tree
below build/bench-pair, set up by its own Makefile from its own lock, and kept for the next comparison.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
OUTPUT = Path("build/bench-pair.json")
SLOWER = 1.03
"""A ratio above which a metric is marked as worse than the base's."""

Values = Mapping[tuple[str, str], Mapping[str, Any]]
"""The figures of one run of the benches, by bench and metric."""


@dataclass(frozen=True)
class Compared:
    """One metric on both sides, round by round."""

    bench: str
    metric: str
    unit: str
    target: str
    base: tuple[float, ...]
    now: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Now over base, ascending; without the rounds in which the base measured 0."""
        return tuple(sorted(now / base for base, now in zip(self.base, self.now, strict=True) if base))

    @property
    def worse(self) -> bool | None:
        """Whether the median ratio is on the wrong side of SLOWER; None if no target says which side that is."""
        if not self.target or not self.ratios:
            return None
        ratio = median(self.ratios)
        return ratio > SLOWER if self.target.startswith("<=") else ratio < 1 / SLOWER


def compare(rounds: Sequence[tuple[Values, Values]]) -> tuple[list[Compared], list[tuple[str, str]], list[tuple[str, str]]]:
    """The metrics of all rounds (base, now); those that the base lacks; and those that only the base has."""
    bases, nows = [base for base, _ in rounds], [now for _, now in rounds]
    common = [key for key in nows[0] if all(key in values for values in (*bases, *nows))]
    compared = []
    for key in common:
        base, now = (tuple(float(values[key]["value"]) for values in side) for side in (bases, nows))
        figure = nows[0][key]
        compared.append(Compared(*key, figure["unit"], figure["target"], base, now))
    return compared, [key for key in nows[0] if key not in bases[0]], [key for key in bases[0] if key not in nows[0]]


def main(arguments: Sequence[str], *, root: Path = ROOT, console: Console | None = None) -> int:
    console = console or Console()
    if not arguments:
        print("name a base: make bench-pair BASE=commit ONLY=cells", file=sys.stderr)
        return 2
    base, names = arguments[0], list(arguments[1:])
    try:
        commit = _git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    except subprocess.CalledProcessError:
        print(f"there is no commit {base} in this repository: fetch it, or name another one with BASE=", file=sys.stderr)
        return 2
    missing = [name for name in names if not _has_bench(root, commit, name)]
    for name in missing:
        print(_explain_missing(root, base, name), file=sys.stderr)
    if missing:
        return 2
    if not names:
        print("name the benches to compare: ONLY='cells step_cost'", file=sys.stderr)
        return 2
    tree = make_tree(root, commit)
    rounds: list[tuple[Values, Values]] = []
    for number in range(int(os.environ.get("EBB_BENCH_ROUNDS", "5"))):
        console.print(f"[bold]round {number + 1}[/] (load average {os.getloadavg()[0]:.2f})")
        # Each side goes first in every second round, so that a drift of the machine favors neither.
        sides = (tree, root) if number % 2 == 0 else (root, tree)
        measured = {side: _run_benches(side, names) for side in sides}
        rounds.append((measured[tree], measured[root]))
    compared, added, removed = compare(rounds)
    console.print(show_table(compared))
    for side, keys in ((f"{base} has", added), ("this checkout has", removed)):
        for bench, metric in keys:
            console.print(f"{side} no metric {metric!r} of {bench}", markup=False, highlight=False)
    output = root / OUTPUT
    output.parent.mkdir(exist_ok=True)
    written = [{**vars(each), "ratios": each.ratios, "worse": each.worse} for each in compared]
    output.write_text(json.dumps({"base": commit, "compared": written}, indent=1) + "\n")
    console.print(
        f"{sum(each.worse is True for each in compared)} of {len(compared)} metrics are worse than {base}'s; see {OUTPUT}"
    )
    return 0


def make_tree(root: Path, commit: str) -> Path:
    """A work tree of the commit with its own environment; one that exists is used again."""
    tree = root / "build" / "bench-pair" / commit[:12]
    if not tree.exists():
        _git(root, "worktree", "prune")
        _git(root, "worktree", "add", "--quiet", "--detach", str(tree), commit)
    has_training = (tree / "scripts" / "setup-training").exists()
    subprocess.run(("make", "-s", ".venv/.training" if has_training else ".venv/.ready"), cwd=tree, check=True)
    return tree


def show_table(compared: Sequence[Compared]) -> Table:
    shown = Table("bench", "metric", "base", "now", "ratio", "from", "to", "")
    for each in compared:
        ratios = each.ratios
        columns = (f"{median(ratios):.3f}", f"{ratios[0]:.3f}", f"{ratios[-1]:.3f}") if ratios else ("", "", "")
        mark = {True: "[red]worse[/]", False: "", None: "no target"}[each.worse]
        medians = (f"{median(values):,g} {each.unit}" for values in (each.base, each.now))
        shown.add_row(each.bench, each.metric, *medians, *columns, mark)
    return shown


def _run_benches(tree: Path, names: Sequence[str]) -> Values:
    """Runs them in a work tree, by its environment; what they print goes to standard error."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = (str(tree / ".venv" / "bin" / "python"), "-m", "benchmarks", *names)
    subprocess.run(command, cwd=tree, env=environment, check=True, stdout=sys.stderr)
    figures = json.loads((tree / "build" / "bench.json").read_text())
    return {(figure["bench"], figure["metric"]): figure for figure in figures}


def _has_bench(root: Path, commit: str, name: str) -> bool:
    shown = subprocess.run(
        ("git", "cat-file", "-e", f"{commit}:benchmarks/{name}.py"), cwd=root, capture_output=True, check=False
    )
    return shown.returncode == 0


def _explain_missing(root: Path, base: str, name: str) -> str:
    added = _git(root, "log", "--diff-filter=A", "--format=%h", "-1", "--", f"benchmarks/{name}.py")
    if not added:
        return f"neither {base} nor a later commit has a bench {name}"
    return f"{base} has no bench {name}; {added} added it: make bench-pair BASE={added} ONLY={name}"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
