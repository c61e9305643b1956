"""docs/architecture.md leads to files that are there, and that hold what it says."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/architecture.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/adr").glob("*.md"))]
_NAMED = re.compile(
    r"`((?:core|policies|run|rpc|store|sim|scheduler_service|node_agent|client_sdk|ebb_common|ebb_inject|tests|proto|docs|migrations)/[\w/.-]*)`"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_are_named_are_there(page: Path) -> None:
    named = _NAMED.findall(page.read_text("utf-8"))
    assert [path for path in named if not any((root / path).exists() for root in (ROOT, ROOT / "scheduler_service"))] == []


@pytest.mark.parametrize("folder", ["core", "policies"])
def test_the_picture_has_every_folder_in_the_order_of_imports(folder: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == [f"scheduler_service.{folder}"]]
    picture = _architecture().split(f"\nscheduler_service/{folder}\n")[1].split("\n\n")[0]
    shown = [re.findall(r"\w+", line[:31]) for line in picture.splitlines()]
    inside = ROOT / "scheduler_service" / folder
    found = [[part for part in layer.split(" : ") if (inside / part).is_dir()] for layer in layers]
    assert [[part for part in line if (inside / part).is_dir()] for line in shown if (inside / line[0]).is_dir()] == [
        layer for layer in found if layer
    ]


@pytest.mark.parametrize(
    ("addition", "files", "of_one_that_is_there"),
    [
        ("A policy", 4, r"\blas\b"),
        ("A job field", 8, r"\bpriority\b"),
        ("A field of a job's state", 6, r"\bsuspend_requested\b"),
        ("A metric", 3, r"\bqueue\b"),
        ("An agent order", 12, r"(?i)run_?ready|prepared?\b"),
    ],
)
def test_the_files_of_an_addition_have_what_was_added_before(addition: str, files: int, of_one_that_is_there: str) -> None:
    """Each file of the table has a part of an addition like it. More files are a reason to derive what is repeated."""
    [section] = re.findall(rf"^\*\*{addition}\*\*.*?^\|---\|---\|\n(.*?)(?:\n\n|\Z)", _architecture(), re.MULTILINE | re.DOTALL)
    named = [path for row in section.splitlines() for path in _NAMED.findall(row.split("|")[1])]
    assert len(named) == files
    for path in named:
        [file] = [root / path for root in (ROOT, ROOT / "scheduler_service") if (root / path).exists()]
        assert re.search(of_one_that_is_there, file.read_text("utf-8")), path


def test_each_word_of_the_glossary_is_in_the_code_where_it_says() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    [rows] = re.findall(r"^\| word \| meaning \|.*?^\|---.*?\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    for row in rows.splitlines():
        [(name, path)] = re.findall(r"\| `(\w+)` in `([\w/.]+)` \|$", row)
        [file] = [root / path for root in (ROOT, ROOT / "scheduler_service") if (root / path).exists()]
        assert re.search(rf"^ *(class|def) {name}\b|^    {name}: ", file.read_text("utf-8"), re.MULTILINE), row


def _architecture() -> str:
    return PAGES[0].read_text("utf-8")
