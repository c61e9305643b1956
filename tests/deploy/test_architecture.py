"""docs/architecture.md leads to files that are there."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs/architecture.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/adr").glob("*.md"))]
_NAMED = re.compile(r"`((?:core|policies|run|rpc|store|sim|scheduler_service|node_agent|client_sdk|ebb_common|tests)/[\w/.]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_are_named_are_there(page: Path) -> None:
    named = _NAMED.findall(page.read_text("utf-8"))
    assert [path for path in named if not any((root / path).exists() for root in (ROOT, ROOT / "scheduler_service"))] == []


@pytest.mark.parametrize("folder", ["core", "policies"])
def test_the_picture_has_every_folder_in_the_order_of_imports(folder: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == [f"scheduler_service.{folder}"]]
    picture = PAGES[0].read_text("utf-8").split(f"\nscheduler_service/{folder}\n")[1].split("\n\n")[0]
    shown = [re.findall(r"\w+", line[:31]) for line in picture.splitlines()]
    inside = ROOT / "scheduler_service" / folder
    found = [[part for part in layer.split(" : ") if (inside / part).is_dir()] for layer in layers]
    assert [[part for part in line if (inside / part).is_dir()] for line in shown if (inside / line[0]).is_dir()] == [
        layer for layer in found if layer
    ]
