"""Amounts, times and names between the core and ebb.v1; and messages that say what a row says."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from ebb.v1 import job_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from scheduler_service.core.model import Node
from scheduler_service.core.model.values import Micros, Vector

M = TypeVar("M", bound=Message)


def vector_in(amount: job_pb2.Resources) -> Vector:
    return Vector(amount.cpu_milli, amount.memory_mib, amount.devices)


def duration_in(duration: Duration) -> Micros:
    return duration.seconds * 1_000_000 + duration.nanos // 1000


Nodes = Mapping[int, Node]


def name_of(nodes: Nodes, node_id: int) -> str:
    return nodes[node_id].name if node_id in nodes else ""


def time_out(at: Micros | None) -> Timestamp | None:
    return None if at is None else Timestamp(seconds=at // 1_000_000, nanos=at % 1_000_000 * 1000)


def duration_out(duration: Micros) -> Duration:
    return Duration(seconds=duration // 1_000_000, nanos=duration % 1_000_000 * 1000)


def vector_out(amount: Vector) -> job_pb2.Resources:
    return job_pb2.Resources(cpu_milli=amount.cpu_milli, memory_mib=amount.memory_mib, devices=amount.devices)


def message_of(kind: type[M], row: Any, **others: Any) -> M:
    """A message with what the row calls by the same names, since one word means one thing in both; `others` are of this message
    alone, or of another type there."""
    both: tuple[Any, Any] = kind, type(row)  # classes, which mypy does not take for hashable
    names, values = _shared_fields(*both)
    return kind(**{**dict(zip(names, values(row), strict=True)), **others})


@cache
def _shared_fields(kind: type[Message], row: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    own = row._fields if issubclass(row, tuple) else [field.name for field in fields(row)]
    names = tuple(name for name in own if name in kind.DESCRIPTOR.fields_by_name)
    return names, attrgetter(*names)
