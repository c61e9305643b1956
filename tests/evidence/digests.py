"""Digests of what comes out of the engine's steps, in a form that no renaming changes.

Values are written by position, without the names of classes and fields. So a class that is renamed or moved keeps its digest,
and a value that changes, a field that is removed, and a line that comes in another order do not. Defaults at the end of a row
are left out. So a field that is added at the end changes a digest only where the field has another value than its default.
"""

import hashlib
import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import Step

STREAMS = ("orders", "replies", "changes", "story")


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Names and defaults."""
    return tuple((field.name, field.default) for field in fields(kind))


def _of_row(row: Any) -> list[Any]:
    known = _fields(type(row))
    values = [getattr(row, name) for name, _ in known]
    while values and (default := known[len(values) - 1][1]) is not MISSING and values[-1] == default:
        values.pop()
    return values


def _values(value: Any) -> Any:
    """What JSON can write of a value that it does not know."""
    if is_dataclass(value) and not isinstance(value, type):
        return _of_row(value)
    if isinstance(value, Refused):
        return [value.reason, str(value), sorted(value.metadata.items())]
    if isinstance(value, Exception):
        return [type(value).__name__, str(value)]
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"evidence knows no {type(value).__name__}: {value!r}")


_encode = json.JSONEncoder(default=_values, separators=(",", ":"), check_circular=False).encode


class Evidence:
    """Digests of all steps that were taken, one for each of `STREAMS`, and how many there were."""

    def __init__(self) -> None:
        self.steps = 0
        self.lines: list[str] = []
        """What the digests are of: a line for each step and stream."""
        self._digests = {stream: hashlib.sha256() for stream in STREAMS}

    def take(self, step: Step) -> None:
        self.steps += 1
        changes = [(change.key, change.new) for change in step.changes]
        streams: tuple[Iterable[Any], ...] = (step.orders, step.replies, changes, (step.log, step.refused))
        for stream, values in zip(STREAMS, streams, strict=True):
            text = _encode(tuple(values))
            self._digests[stream].update(text.encode() + b"\n")
            self.lines.append(f"step {self.steps} {stream} {text}")

    def result(self) -> dict[str, str | int]:
        """Of each stream, and the number of steps."""
        return {"steps": self.steps} | {stream: digest.hexdigest()[:16] for stream, digest in self._digests.items()}


# ---- the lines themselves, to show what has changed ----------------------------------------------------------------------

TEXTS = Path(__file__).with_name("texts")
_SHOWN, _WIDTH = 5, 300


def keep(name: str, lines: Sequence[str]) -> None:
    """Keeps the lines of a scenario. The same lines give the same bytes."""
    TEXTS.mkdir(exist_ok=True)
    _file(name).write_bytes(lzma.compress("\n".join(lines).encode(), preset=9))


def kept(name: str) -> list[str]:
    return lzma.decompress(_file(name).read_bytes()).decode().splitlines()


def _file(name: str) -> Path:
    return TEXTS / f"{name.replace(' ', '-')}.xz"


def first_difference(before: Sequence[str], now: Sequence[str]) -> str:
    """For people: the first lines that differ, from shortly before the place in them where they do."""
    shown = []
    for one, other in zip_longest(before, now, fillvalue="(nothing more)"):
        if one != other and len(shown) < _SHOWN:
            same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
            label, cut = " ".join(one.split(" ", 3)[:3]), max(0, same - _WIDTH // 3)
            shown.append(
                f"{label}, from its character {cut} on\n  was {one[cut : cut + _WIDTH]}\n  is  {other[cut : cut + _WIDTH]}"
            )
    return "\n".join(shown)
