"""Uploads archives to the scheduler in pieces, so that an interrupted upload can resume."""

import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from client_sdk._requests.files import PIECE, FindSnapshot, PutSnapshot, Stored
from client_sdk._requests.jobs import Request
from client_sdk.errors import InvalidArgument

if TYPE_CHECKING:
    from ebb_common.archive import Archive

T = TypeVar("T")

Asked = Generator[Request[Any], Any, T]
"""A generator that yields requests, receives their answers and returns the result. Both kinds of client drive it."""


def take_snapshot(options: Mapping[str, Any]) -> "Archive | None":
    """The snapshot that the options of a job ask for. Raises InvalidArgument."""
    wanted = options.get("snapshot", False)
    if wanted is None or wanted is False:
        return None
    if wanted is not True and not isinstance(wanted, str | os.PathLike):
        raise InvalidArgument(f"snapshot is True, or a directory, and not {wanted!r}")
    from client_sdk.capture import snapshot  # what it needs, most jobs do not

    return snapshot("." if wanted is True else wanted)


def upload(archive: "Archive") -> Asked[str]:
    """Stores what is not stored yet; the digest."""
    known: Stored = yield FindSnapshot(archive.digest)
    while not known.complete:
        piece = archive.data[known.stored : known.stored + PIECE]
        known = yield PutSnapshot(archive.digest, archive.size, known.stored, piece)
    return archive.digest


def carry_out(course: Asked[T], ask: Callable[[Request[Any]], Any]) -> T:
    """Run a course, sending its requests with `ask`, and return its result."""
    answer = None
    while True:
        try:
            request = course.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = ask(request)


async def carry_out_async(course: Asked[T], ask: Callable[[Request[Any]], Awaitable[Any]]) -> T:
    """As `carry_out`."""
    answer = None
    while True:
        try:
            request = course.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = await ask(request)
