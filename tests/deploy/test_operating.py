"""docs/operating.md and docs/devices.md name every setting of both programs, with its default."""

import re
from pathlib import Path

import pytest

from node_agent.commands.main import main as ebb_agent
from node_agent.config import Settings
from scheduler_service.commands.main import main as ebb_scheduler
from scheduler_service.config import Config

DOCS = Path(__file__).parents[2] / "docs"
OPERATING = (DOCS / "operating.md").read_text()
PROGRAMS = {"Scheduler": (Config, ebb_scheduler.commands["serve"]), "Agents": (Settings, ebb_agent.commands["run"])}  # type: ignore[attr-defined]
NO_SETTINGS = {"config", "check_config"}


def rows(text: str) -> dict[str, str]:
    """Setting -> default, of the first table of settings. A row may name several: `a, b | 1, 2`."""
    table = text[text.index("| setting | default |") :].split("\n\n", 1)[0]
    found = {}
    for line in table.splitlines()[2:]:
        names, defaults = (re.split(r"[,;] ", cell.strip()) for cell in line.split("|")[1:3])
        found |= dict(zip(names, defaults if len(defaults) == len(names) else [" ".join(defaults)] * len(names), strict=True))
    return found


@pytest.mark.parametrize("heading", PROGRAMS)
def test_every_setting_is_there_with_its_default(heading: str) -> None:
    settings, command = PROGRAMS[heading]
    told = rows(OPERATING[OPERATING.index(f"\n## {heading}\n") :])
    if heading == "Agents":
        told |= rows((DOCS / "devices.md").read_text())
    assert set(told) == set(settings.model_fields)
    assert {option.name for option in command.params} - {"file"} <= set(told) | NO_SETTINGS, "a flag is a setting"
    for name, field in settings.model_fields.items():
        default = field.get_default()
        if isinstance(default, bool):
            assert told[name] == ("yes" if default else "no"), name
        elif isinstance(default, int | float):
            assert float(told[name]) == default, name
        elif isinstance(default, str):
            assert told[name] == default, name
