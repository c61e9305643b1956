"""Tables of a study, for a terminal and as Markdown, and the places of a document where they go.

A document has a pair of comments for each part, `<!-- begin: table-1 -->` and `<!-- end: table-1 -->`; what is between them
is written by the study, so that no number in it was ever typed.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from scheduler_service.sim.estimates import Estimate
from scheduler_service.sim.tables import lay_out


class Table(NamedTuple):
    name: str
    """Of its place in a document."""
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    note: str = ""


class BadDocument(Exception):
    """The document has no place for a part; the message says for which."""


def number(value: float | None) -> str:
    """With three digits that count, as the paper prints them."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def estimated(estimate: Estimate | None, scale: float = 1) -> str:
    """The mean and half its interval."""
    if estimate is None:
        return "-"
    half = "" if estimate.half is None else f" ± {estimate.half * scale:.2g}"
    return number(estimate.mean * scale) + half


def on_terminal(console: Console, table: Table) -> None:
    lay_out(console, table.title, table.columns, {label: list(cells) for label, cells in table.rows})
    if table.note:
        console.print(table.note, style="dim", highlight=False, markup=False)


def as_markdown(table: Table) -> str:
    head = f"| | {' | '.join(table.columns)} |\n|---|{'---:|' * len(table.columns)}\n"
    body = "".join(f"| {label} | {' | '.join(cells)} |\n" for label, cells in table.rows)
    return f"**{table.title}**\n\n{head}{body}" + (f"\n{table.note}\n" if table.note else "")


def as_figure(name: str, title: str, folder: str) -> str:
    return f"![{title}]({folder}/{name}.svg)\n"


def filled_in(document: str, parts: Mapping[str, str]) -> str:
    """The document with these parts at their places; others stay as they are. Raises BadDocument."""
    for name, text in parts.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        place = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if not place.search(document):
            raise BadDocument(f"there is no place for {name} in it, between {begin} and {end}")
        document = place.sub(lambda _, said=f"{begin}\n{text}{end}": said, document, count=1)  # type: ignore[misc]
    return document


def write_into(document: Path, parts: Mapping[str, str]) -> None:
    """Raises BadDocument, OSError."""
    document.write_text(filled_in(document.read_text(encoding="utf-8"), parts), encoding="utf-8")


def joined(tables: Sequence[Table]) -> str:
    return "\n".join(map(as_markdown, tables))
