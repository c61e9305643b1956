"""Messages in pieces: what grows with what users submit must neither pass what gRPC takes nor hold up the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Protocol, TypeVar

LARGEST_BYTES = 4 << 20
"""Bytes of a piece; more only where one part alone has more. A receiver takes 64 MiB."""
MOST_PARTS = 200
"""Parts of a piece: some milliseconds of work."""


class _Message(Protocol):
    def ByteSize(self) -> int: ...  # noqa: N802


T = TypeVar("T")
P = TypeVar("P", bound=_Message)


def chunks(
    parts: Iterable[T], made: Callable[[T], P], largest: int = LARGEST_BYTES, most: int = MOST_PARTS
) -> Iterator[list[P]]:
    """Yield the messages `made` of the parts in pieces of limited size, lazily; a single empty piece if there are no parts."""
    piece: list[P] = []
    size = 0
    for part in parts:
        message = made(part)
        more = message.ByteSize()
        if piece and (size + more > largest or len(piece) >= most):
            yield piece
            piece, size = [], 0
        piece.append(message)
        size += more
    yield piece


async def in_turns(parts: Iterable[T], made: Callable[[T], P]) -> AsyncIterator[tuple[list[P], bool, bool]]:
    """The same, each piece with whether it is the first and whether it is the last. Between two, others have their turn."""
    waiting: list[P] | None = None
    first = True
    for piece in chunks(parts, made):
        if waiting is not None:
            yield waiting, first, False
            first = False
            await asyncio.sleep(0)
        waiting = piece
    assert waiting is not None
    yield waiting, first, True
