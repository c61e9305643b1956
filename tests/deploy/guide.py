"""The commands of docs/installing.md. A fence ```sh MACHINE is run there by tests/deploy/walk.py; a bare one is only shown."""

import re
from pathlib import Path
from typing import NamedTuple

GUIDE = Path(__file__).parents[2] / "docs" / "installing.md"
MACHINES = ("scheduler", "node")


_PARTS = r"^#+ (?P<heading>[^\n]+)$|^```sh ?(?P<machine>\w*)\n(?P<script>.*?)^```$"


class Block(NamedTuple):
    heading: str
    machine: str
    """Empty for one that is only shown."""
    script: str


def blocks(text: str) -> list[Block]:
    found = []
    heading = ""
    for match in re.finditer(_PARTS, _without_comments(text), re.M | re.S):
        if match["heading"]:
            heading = match["heading"]
        else:
            found.append(Block(heading, match["machine"], match["script"]))
    return found


def files(script: str) -> dict[str, str]:
    """What a script writes by here documents: path -> content."""
    return {match[1]: match[2] for match in re.finditer(r"^cat > (\S+) <<'END'\n(.*?)^END$", script, re.M | re.S)}


def _without_comments(text: str) -> str:
    """A line of a script that begins with # is no heading."""
    inside = False
    lines = []
    for line in text.splitlines(keepends=True):
        if line.startswith("```"):
            inside = not inside
        lines.append(line if not (inside and line.startswith("#")) else f" {line}")
    return "".join(lines)
