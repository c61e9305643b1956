"""Agents send what is larger than one message may be in pieces. Here they are put together."""

from collections.abc import AsyncIterator

from ebb.agent.v1 import agent_link_pb2 as pb

from scheduler_service.rpc.interceptors import InvalidArgument

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
