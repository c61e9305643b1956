"""The README of a folder: each folder of more than five files has one, and what it names is there."""

import re
from pathlib import Path

import pytest

from tests.harness import ROOT

PACKAGES = ("scheduler_service", "node_agent", "client_sdk", "ebb_common", "ebb_inject", "reproduction")
MOST_FILES, MOST_LINES = 5, 30
FILE = re.compile(r"`([\w/]+\.py)`|(?<![\w./])([a-z_][\w/]*\.py)\b")


def folders() -> list[Path]:
    found = [ROOT / package for package in PACKAGES]
    found += [folder for package in PACKAGES for folder in (ROOT / package).rglob("*") if (folder / "__init__.py").is_file()]
    return sorted(folder for folder in found if len(sources(folder)) > MOST_FILES)


def sources(folder: Path) -> list[Path]:
    return [file for file in folder.glob("*.py") if file.name != "__init__.py"]


@pytest.mark.parametrize("folder", [str(folder.relative_to(ROOT)) for folder in folders()])
def test_a_folder_of_more_than_five_files_says_how_its_parts_call_each_other(folder: str) -> None:
    page = ROOT / folder / "README.md"
    assert page.is_file(), f"{folder} has {len(sources(ROOT / folder))} files and no README.md"
    text = page.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert "```" in text, "it has no picture"
    named = {one or other for one, other in FILE.findall(text)}
    missing = sorted(name for name in named if not ((ROOT / folder / name).is_file() or (ROOT / name).is_file()))
    assert not missing, f"{page} names what is not there: {missing}"
    untold = sorted(file.name for file in sources(ROOT / folder) if not re.search(rf"\b{file.stem}\b", text))
    assert not untold, f"{page} does not name {untold}"
