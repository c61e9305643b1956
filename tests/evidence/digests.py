"""Digests of what comes out of the engine's steps, in a form that no renaming changes.

Values are written by position, without the names of classes and fields. So a class that is renamed or moved keeps its digest,
and a value that changes, a field that is removed, and a line that comes in another order do not. Defaults at the end of a row
are left out. So a field that is added at the end changes a digest only where the field has another value than its default.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
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
        self._digests = {stream: hashlib.sha256() for stream in STREAMS}

    def take(self, step: Step) -> None:
        self.steps += 1
        changes = [(change.key, change.new) for change in step.changes]
        streams: tuple[Iterable[Any], ...] = (step.orders, step.replies, changes, (step.log, step.refused))
        for stream, values in zip(STREAMS, streams, strict=True):
            self._digests[stream].update(_encode(tuple(values)).encode() + b"\n")

    def result(self) -> dict[str, str | int]:
        """Of each stream, and the number of steps."""
        return {"steps": self.steps} | {stream: digest.hexdigest()[:16] for stream, digest in self._digests.items()}
