"""Comparison of benches with a base commit: alternation, each side's own code, ratios, and metrics that one side lacks."""

import json
import subprocess
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.compare import OUTPUT, compare, main

BENCH = """
import json, sys
from pathlib import Path
with Path({calls!r}).open("a") as calls:
    calls.write({side!r} + " " + " ".join(sys.argv[1:]) + chr(10))
Path("build").mkdir(exist_ok=True)
Path("build/bench.json").write_text({figures!r})
"""


def figures(**values: float) -> list[dict[str, object]]:
    return [
        {"bench": "speed", "metric": name, "value": value, "unit": "us", "target": "<= 9"} for name, value in values.items()
    ]


def keyed(**values: float) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    return {("speed", str(each["metric"])): each for each in figures(**values)}


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(("git", *who, *arguments), cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def write_side(folder: Path, side: str, **values: float) -> None:
    """A checkout whose benches append their side and arguments to a file."""
    (folder / "benchmarks").mkdir(exist_ok=True)
    (folder / "benchmarks" / "speed.py").touch()
    shown = json.dumps(figures(**values))
    (folder / "benchmarks" / "__main__.py").write_text(
        BENCH.format(side=side, figures=shown, calls=str(folder.parent / "calls"))
    )
    (folder / "Makefile").write_text(
        f".venv/.ready:\n\tmkdir -p .venv/bin\n\tln -s {sys.executable} .venv/bin/python\n\ttouch $@\n"
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a commit, tagged base, and a later state that is not committed."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / ".gitignore").write_text("/build/\n/.venv/\n")
    write_side(folder, "base", common=10, dropped=1)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "base")
    git(folder, "tag", "base")
    write_side(folder, "now", common=12, added=2)
    subprocess.run(("make", "-s", ".venv/.ready"), cwd=folder, check=True)
    return folder


def test_each_side_runs_its_own_code_in_turns_and_ratios_are_shown(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_BENCH_ROUNDS", "3")
    shown = StringIO()
    assert main(["base", "speed"], root=checkout, console=Console(file=shown, width=200)) == 0
    calls = (checkout.parent / "calls").read_text().splitlines()
    assert calls == [f"{side} speed" for side in ("base", "now", "now", "base", "base", "now")]
    assert "1.200" in shown.getvalue()
    assert "worse" in shown.getvalue()
    assert "base has no metric 'added' of speed" in shown.getvalue()
    assert "this checkout has no metric 'dropped' of speed" in shown.getvalue()
    written = json.loads((checkout / OUTPUT).read_text())
    assert written["base"] == git(checkout, "rev-parse", "base")
    assert [each["metric"] for each in written["compared"]] == ["common"]


def test_a_work_tree_is_used_again(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_BENCH_ROUNDS", "1")
    for _ in range(2):
        assert main(["base", "speed"], root=checkout, console=Console(file=StringIO())) == 0
    assert len(git(checkout, "worktree", "list").splitlines()) == 2


def test_a_bench_that_the_base_lacks_names_the_commit_that_added_it(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "benchmarks" / "later.py").touch()
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "later")
    later = git(checkout, "rev-parse", "--short", "HEAD")
    assert main(["base", "later", "never"], root=checkout) == 2
    said = capsys.readouterr().err
    assert f"base has no bench later; {later} added it: make bench-pair BASE={later} ONLY=later" in said
    assert "neither base nor a later commit has a bench never" in said


@pytest.mark.parametrize(
    ("arguments", "said"), [([], "name a base"), (["nowhere", "speed"], "no commit nowhere"), (["base"], "name the benches")]
)
def test_what_is_missing_is_named(checkout: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments, root=checkout) == 2
    assert said in capsys.readouterr().err


def test_ratios_are_of_neighbors_and_a_target_says_which_side_is_worse() -> None:
    compared, _, _ = compare([(keyed(a=10, zero=0), keyed(a=11, zero=0)), (keyed(a=20, zero=0), keyed(a=20, zero=1))])
    slower, zero = compared
    assert slower.ratios == (1.0, 1.1)
    assert slower.worse
    assert (zero.ratios, zero.worse) == ((), None)
    rate = compare([({key: {**value, "target": ">= 5"} for key, value in keyed(a=10).items()},) * 2])[0][0]
    assert rate.worse is False
