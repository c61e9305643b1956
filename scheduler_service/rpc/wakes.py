"""Has gRPC wake the event loop once for all that has happened, rather than once for each thing.

For each event, a thread of gRPC's writes a byte to a pair of sockets that the event loop watches. The loop then takes every
event that is there, but reads one byte, so it wakes up again for each of the others and finds nothing. Once the pair holds no
more bytes (278 on Linux), that thread waits to write, and from then on the loop gets one event in each of its turns. After the
links of 2,000 agents broke at once, the calls of users waited a second for theirs.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

_ALL = 65536


class _Emptied(socket.socket):
    """Read empty by each `recv`: what is read says nothing but that something has happened."""

    def recv(self, _size: int, flags: int = 0, /) -> bytes:
        return super().recv(_ALL, flags)


@contextmanager
def once() -> Iterator[None]:
    """In this block the process must use `grpc.aio` for the first time, which makes the pair. gRPC has no setting for it."""
    made = socket.socketpair

    def pair() -> tuple[socket.socket, socket.socket]:
        read, write = made()
        return _Emptied(read.family, read.type, read.proto, read.detach()), write

    socket.socketpair = pair  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.socketpair = made
