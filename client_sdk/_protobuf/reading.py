"""The SDK's values from the API's messages, by the names and the types of their fields.

A field of a value has the name that it has in the message; a datetime may leave out the suffix `_time`. The type says how
the field is read:

    X | None              None if the message does not say; for a field that is always there: if it is 0 or empty
    tuple, Mapping        of a repeated field, of a map
    datetime, timedelta   of a Timestamp, of a Duration
    an IntEnum            its member. A number that this SDK is too old to know reads as UNSPECIFIED, and UNSPECIFIED as the
                          default of the field if it has one
    a dataclass           by these same rules, unless `READ` has a function for it

A field that is added to a message and to a value therefore needs nothing here.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import cache, partial
from operator import attrgetter
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)
Read = Callable[[Any], Any]

READ: dict[type, Read] = {}
"""A function for each kind of value that has another form in its message."""


def read(kind: type[T], message: Message, **given: Any) -> T:
    """The value that the message says. `given` holds fields that the message says in another way, or not at all."""
    plan: Any = _fields  # mypy does not take classes for hashable
    found = {name: of(message) for name, of in plan(kind, message.DESCRIPTOR, frozenset(given))}
    return kind(**found, **given)


def enum(kind: type[E], number: int) -> E:
    """A newer scheduler may send a number that this SDK has no name for: that number reads as UNSPECIFIED."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def duration(value: Duration) -> timedelta:
    return timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def moment(value: Timestamp) -> datetime:
    return datetime.fromtimestamp(value.seconds, UTC) + timedelta(microseconds=value.nanos // 1000)


@cache
def _fields(kind: Any, message: Descriptor, given: frozenset[str]) -> tuple[tuple[str, Read], ...]:
    hints, there = get_type_hints(kind), message.fields_by_name
    found = []
    for field in fields(kind):
        if field.name not in given:
            source = there.get(field.name) or there.get(f"{field.name}_time")
            assert source is not None, f"{message.name} has no {field.name}, and {kind.__name__} has"
            found.append((field.name, _field(field, hints[field.name], source)))
    return tuple(found)


def _field(field: Field[Any], hint: Any, source: FieldDescriptor) -> Read:
    get, default = attrgetter(source.name), _default(field)
    if get_origin(hint) is tuple:
        item = _value(get_args(hint)[0])
        return lambda message: tuple(get(message)) if item is _identity else tuple(map(item, get(message)))
    if get_origin(hint) is Mapping:
        return lambda message: dict(get(message))
    optional = NoneType in get_args(hint)
    of = _value(next(kind for kind in get_args(hint) if kind is not NoneType) if optional else hint)
    if source.has_presence and (optional or default is not MISSING):
        absent = None if optional else default
        return lambda message: of(get(message)) if message.HasField(source.name) else absent
    if source.enum_type is not None and default is not MISSING:
        return lambda message: of(get(message)) or default
    if optional:
        return lambda message: of(get(message)) or None
    return get if of is _identity else lambda message: of(get(message))


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _value(kind: Any) -> Read:
    """How one value of this type is read."""
    if kind in READ:
        return READ[kind]
    if is_dataclass(kind):
        return _message_reader(kind)
    if issubclass(kind, IntEnum):
        return partial(enum, kind)
    return _TIMES.get(kind, _identity)


def _message_reader(kind: Any) -> Read:
    return lambda message: read(kind, message)


def _identity(value: Any) -> Any:
    return value


_TIMES: dict[type, Read] = {datetime: moment, timedelta: duration}
