"""Digests of what comes out of the engine's steps, in a form that no renaming changes.

Values are written by position, without the names of classes and fields. So a class that is renamed or moved keeps its
digest, and a value that changes, a field that is added or removed, and a line that comes in another order do not.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from scheduler_service.core.errors import Refused
from scheduler_service.core.messages import Step

STREAMS = ("orders", "replies", "changes", "story")


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _values(value: Any) -> Any:
    """What JSON can write of a value that it does not know."""
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, name) for name in _names(type(value))]
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
