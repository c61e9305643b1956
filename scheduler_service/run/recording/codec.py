"""Events, rows and what comes out of a step as JSON, and back: for recordings.

It follows the annotations of the dataclasses, so a new event or field is in it by itself. A dataclass is [its name, {its
fields}], a NamedTuple or tuple an array, an enum its number. Reading is strict: a name that is unknown, a field too many
or too few, a value of another type: each is an error, never a guess.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from scheduler_service.core.errors import Refused

Read = Callable[[Any], Any]


class CodecError(Exception):
    """A value that was read has the wrong type; the message says where, and what was found."""


# ---- writing -----------------------------------------------------------------------------------------------------------

_NONE: frozenset[str] = frozenset()
Write = Callable[[Any], Any]
"""Gives what JSON can write of a value: it knows tuples and numbered enums itself."""


def encoder(secret: frozenset[str] = _NONE, hide: Write = str) -> Callable[[Any], str]:
    """Gives the text of a value, which `decode` reads. Of fields with a name in `secret`, `hide` writes the value."""

    def encoder_of(kind: type) -> Write:
        names = tuple(field.name for field in fields(kind))
        values, plain = _values(names, secret, hide), secret.isdisjoint(names) and not hasattr(kind, "__slots__")
        if plain and not any(isinstance(value, cached_property) for value in vars(kind).values()):
            return lambda row: (kind.__name__, row.__dict__)
        return lambda row: (kind.__name__, dict(zip(names, values(row), strict=True)))

    return _encoder(encoder_of)


def canonical(secret: frozenset[str] = _NONE, hide: Write = str) -> Callable[[Any], str]:
    """Gives a text that is the same for equal values, however they were made, and is never read: it has no field names."""

    def encoder_of(kind: type) -> Write:
        values = _values(tuple(field.name for field in fields(kind)), secret, hide)
        return lambda row: (kind.__name__, values(row))

    return _encoder(encoder_of)


def _as_it_is(value: Any) -> Any:
    return value


def _values(names: tuple[str, ...], secret: frozenset[str], hide: Write) -> Callable[[Any], tuple[Any, ...]]:
    if not secret.isdisjoint(names):
        writes = tuple((name, hide if name in secret else _as_it_is) for name in names)
        return lambda row: tuple(write(getattr(row, name)) for name, write in writes)
    if len(names) > 1:
        return attrgetter(*names)
    return lambda row: tuple(getattr(row, name) for name in names)


def _encoder(of: Callable[[type], Write]) -> Callable[[Any], str]:
    known: dict[type, Write] = {frozenset: sorted, bytes: bytes.hex}

    def write(value: Any) -> Any:
        kind = type(value)
        if kind not in known:
            known[kind] = of(kind) if is_dataclass(kind) else _exception(value)
        return known[kind](value)

    return json.JSONEncoder(default=write, separators=(",", ":"), check_circular=False).encode


def _exception(value: Any) -> Write:
    name = type(value).__name__
    if isinstance(value, Refused):
        return lambda refusal: (name, refusal.reason, str(refusal), refusal.metadata)
    if isinstance(value, Exception):
        return lambda fault: (name, str(fault))
    raise TypeError(f"{name} is not meant to be in a recording: {value!r}")


# ---- reading -----------------------------------------------------------------------------------------------------------


def decode(annotation: Any, value: Any) -> Any:
    """Decode a JSON value to a value of this type. Raises CodecError."""
    return _reader(annotation)(value)


def _refuse(wanted: object, found: Any) -> CodecError:
    name = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    shown = repr(found)
    return CodecError(f"{name} expected, found {shown if len(shown) < 200 else shown[:200] + '...'}")


@cache
def _reader(annotation: Any) -> Read:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _union(annotation, arguments)
    if origin is Literal:
        return _one_of(annotation, {value: value for value in arguments})
    if origin is tuple:
        return _tuple(annotation, arguments)
    if origin is frozenset:
        members = _tuple(annotation, (*arguments, ...))
        return lambda value: frozenset(members(value))
    if origin in (dict, Mapping):
        return _mapping(annotation, arguments)
    if annotation in (None, NoneType):
        return _one_of(annotation, {None: None})
    if annotation is Any:
        return lambda value: value
    if isinstance(annotation, type):
        if annotation in (bool, int, str, float):
            return _scalar(annotation)
        if annotation is bytes:
            text = _scalar(str)
            return lambda value: bytes.fromhex(text(value))
        if issubclass(annotation, Enum):
            return _one_of(annotation, {member.value: member for member in annotation})
        if is_dataclass(annotation):
            return _dataclass(annotation)
        if issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
            return _named_tuple(annotation)
    raise NotImplementedError(f"the codec of recordings does not know {annotation}: teach it")


def _scalar(kind: type) -> Read:
    allowed = (int, float) if kind is float else (kind,)

    def read(value: Any) -> Any:
        if type(value) not in allowed:
            raise _refuse(kind, value)
        return value

    return read


def _one_of(annotation: Any, members: Mapping[Any, Any]) -> Read:
    kinds = {type(value) for value in members}

    def read(value: Any) -> Any:
        if type(value) not in kinds or value not in members:
            raise _refuse(annotation, value)
        return members[value]

    return read


def _tuple(annotation: Any, arguments: tuple[Any, ...]) -> Read:
    if len(arguments) == 2 and arguments[1] is ...:
        item = _reader(arguments[0])

        def read_all(value: Any) -> Any:
            if type(value) is not list:
                raise _refuse(annotation, value)
            return tuple(map(item, value))

        return read_all
    items = [_reader(argument) for argument in arguments]

    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(items):
            raise _refuse(annotation, value)
        return tuple(item(part) for item, part in zip(items, value, strict=True))

    return read


def _named_tuple(kind: Any) -> Read:
    hints = get_type_hints(kind)
    parts = _tuple(kind, tuple(hints[name] for name in kind._fields))
    return lambda value: kind(*parts(value))


def _mapping(annotation: Any, arguments: tuple[Any, ...]) -> Read:
    item = _reader(arguments[1])
    if arguments[0] is not str:
        raise NotImplementedError(f"the codec of recordings knows mappings by str alone, not {annotation}")

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _refuse(annotation, value)
        return {name: item(part) for name, part in value.items()}

    return read


def _dataclass(kind: Any) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != 2 or value[0] != kind.__name__ or type(value[1]) is not dict:
            raise _refuse(kind, value)
        return _from_fields(kind, value[1])

    return read


@cache
def _fields(kind: Any) -> dict[str, Read]:
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind) if field.init}


def _from_fields(kind: Any, given: Mapping[str, Any]) -> Any:
    readers = _fields(kind)
    if given.keys() != readers.keys():
        unknown, missing = sorted(given.keys() - readers.keys()), sorted(readers.keys() - given.keys())
        raise CodecError(f"{kind.__name__} has not the fields of this version: unknown {unknown}, missing {missing}")
    values = {}
    for name, read in readers.items():
        try:
            values[name] = read(given[name])
        except CodecError as error:
            raise CodecError(f"{kind.__name__}.{name}: {error}") from None
    return kind(**values)


def _union(annotation: Any, arguments: tuple[Any, ...]) -> Read:
    """Dataclasses are told apart by their names, all else by being of one of the types."""
    by_name = {kind.__name__: _reader(kind) for kind in arguments if isinstance(kind, type) and is_dataclass(kind)}
    others = [_reader(kind) for kind in arguments if not (isinstance(kind, type) and is_dataclass(kind))]

    def read(value: Any) -> Any:
        if type(value) is list and value and type(value[0]) is str and value[0] in by_name:
            return by_name[value[0]](value)
        for other in others:
            try:
                return other(value)
            except CodecError:
                continue
        raise _refuse(annotation, value)

    return read
