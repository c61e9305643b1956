"""Splits messages that are too large for the scheduler into pieces that it reassembles."""

from collections.abc import Iterator
from typing import Any

from ebb.agent.v1 import agent_link_pb2 as pb

LARGEST_PIECE = 1 << 20
"""Bytes; more only if a single item of a list has more. The scheduler accepts 2 MiB."""


def pieces(data: bytes, largest: int = LARGEST_PIECE) -> Iterator[bytes]:
    """Yield a message, made by `convert.encode`, in one piece or several, each of which is a message of its own.

    The first has all fields but the lists; together they have the items of the lists, in order.
    """
    if len(data) <= largest:
        yield data
        return
    request = pb.ConnectRequest.FromString(data)
    kind = request.WhichOneof("message")
    assert kind is not None, "an empty message is small"
    whole: Any = getattr(request, kind)
    lists = [
        (field, values) for field, values in whole.ListFields() if field.is_repeated and field.message_type and not _map(field)
    ]
    piece = pb.ConnectRequest(more=True)
    part: Any = getattr(piece, kind)
    part.MergeFrom(whole)
    for field, _ in lists:
        part.ClearField(field.name)
    size = piece.ByteSize()
    for field, values in lists:
        for value in values:
            if size + value.ByteSize() > largest:
                yield piece.SerializeToString()
                piece, size = pb.ConnectRequest(more=True), 0
                part = getattr(piece, kind)
            getattr(part, field.name).add().CopyFrom(value)
            size += value.ByteSize() + 8  # its tag and its length
    part.SetInParent()
    piece.more = False
    yield piece.SerializeToString()


def _map(field: Any) -> bool:
    return bool(field.message_type.GetOptions().map_entry)
