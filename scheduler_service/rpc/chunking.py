"""Messages in pieces: what grows with what users submit must neither pass what gRPC takes nor hold up the event loop.

Agents, too, send what is larger than one message may be in pieces, which are put together.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from ebb.agent.v1 import agent_link_pb2 as pb

from scheduler_service.rpc.interceptors import InvalidArgument

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


LARGEST_WHOLE = 32 << 20
"""Bytes of all pieces together: more than the largest hello that has nothing but what its rules permit."""


async def put_together(requests: AsyncIterator[pb.ConnectRequest]) -> AsyncIterator[pb.ConnectRequest]:
    """The messages of an agent, each of them whole. Raises InvalidArgument for pieces that are not of one message."""
    whole: pb.ConnectRequest | None = None
    size = 0
    async for piece in requests:
        if whole is None and not piece.more:
            yield piece
            continue
        size += piece.ByteSize()
        if size > LARGEST_WHOLE:
            raise InvalidArgument("INVALID_FIELD", f"more: the pieces of a message have at most {LARGEST_WHOLE} bytes together")
        if whole is None:
            whole = piece
        elif piece.WhichOneof("message") != whole.WhichOneof("message"):
            raise InvalidArgument("INVALID_FIELD", "more: the pieces of a message are of one kind")
        else:
            whole.MergeFrom(piece)
        if not piece.more:
            whole.more = False
            yield whole
            whole, size = None, 0
