"""A request as it is sent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request as it is sent, and how its answer is read."""

    method: str
    message: Message
    response: type[Message]
    read: Callable[[Any], T]


def why_not(error: Exception) -> str:
    """Why protobuf takes a value for no such field, in words."""
    if isinstance(error, UnicodeEncodeError):  # what the shell or the disk gave is other bytes
        return f"{error.object!r} is not UTF-8"
    return str(error)
