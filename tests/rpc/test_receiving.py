"""What callers can send before they are let in, and what is refused by its size alone."""

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import grpc
import pytest

from scheduler_service.rpc.access import MAY, OPEN, SPEAKING_AT_ONCE
from scheduler_service.rpc.receiving import LARGEST_MESSAGE, LARGEST_SPEC
from scheduler_service.rpc.server import STREAMS_EACH
from tests.rpc.server import LIMIT, Server, failure

WINDOW = 65_535
"""Bytes that HTTP/2 lets a stream send ahead."""
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
GUARDED = sorted(method for method, rule in MAY.items() if rule is not OPEN)
STREAMING = {"/ebb.agent.v1.AgentLink/Connect", "/ebb.agent.v1.AgentLink/SendLog"}
"""The methods whose requests are streams. A few of their callers at a time are heard before they are refused."""


class Connection:
    """A client of HTTP/2 that sends as much as it may."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=LIMIT)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0))
        self.granted: dict[int, int] = {0: WINDOW}
        self.most_streams: int | None = None
        self.ended: set[int] = set()
        self.ponged = False
        self._buffer = b""

    def close(self) -> None:
        self.socket.close()

    def begin(self, stream: int, method: str) -> None:
        """Begins a call without a token."""
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(b"\x00" + _literal(name) + _literal(value) for name, value in fields.items())
        self.socket.sendall(_frame(HEADERS, 4, stream, block))
        self.granted[stream] = WINDOW

    def announce(self, stream: int, length: int) -> None:
        """Says how long its message is, and sends the first byte of it."""
        self.socket.sendall(_frame(DATA, 0, stream, b"\x00" + struct.pack(">I", length) + b"x"))

    def read(self) -> None:
        """Reads one frame, and does what it asks for."""
        kind, flags, stream, payload = self._read()
        if kind == PING and flags & 1:
            self.ponged = True
        elif kind == PING:
            self.socket.sendall(_frame(PING, 1, 0, payload))
        elif kind == SETTINGS and not flags & 1:
            found = [struct.unpack(">HI", payload[at : at + 6]) for at in range(0, len(payload), 6)]
            self.most_streams = dict(found).get(3)
            self.socket.sendall(_frame(SETTINGS, 1, 0))
        elif kind == WINDOW_UPDATE:
            self.granted[stream] = self.granted.get(stream, 0) + struct.unpack(">I", payload)[0]
        elif kind == RST_STREAM or (kind == HEADERS and flags & 1):
            self.ended.add(stream)

    def _read(self) -> tuple[int, int, int, bytes]:
        head = self._take(9)
        size = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:], "big"), self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            got = self.socket.recv(1 << 16)
            assert got, "the server has closed the connection"
            self._buffer += got
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _literal(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


@contextmanager
def connection(server: Server) -> Iterator[Connection]:
    with closing(Connection(server.address)) as made:
        yield made


@pytest.fixture
def guarded(database_url: str) -> Iterator[Server]:
    with Server(database_url, auth="token") as server:
        yield server


def test_a_caller_without_a_token_is_granted_no_memory_beyond_the_first_window(guarded: Server) -> None:
    """Of every method that asks for a token: what is announced stays with the caller, and the call is refused."""
    with connection(guarded) as made:
        for number, method in enumerate(GUARDED):
            made.begin(2 * number + 1, method)
            made.announce(2 * number + 1, LARGEST_MESSAGE)
        while len(made.ended) < len(GUARDED):
            made.read()
        granted = {method: made.granted[2 * number + 1] for number, method in enumerate(GUARDED)}
        assert {method for method, size in granted.items() if size > 2 * WINDOW} <= STREAMING, granted
        assert made.most_streams == STREAMS_EACH


def test_few_streams_without_a_token_are_heard_before_they_are_refused(guarded: Server) -> None:
    with connection(guarded) as made:
        streams = range(1, 2 * STREAMS_EACH, 2)
        for stream in streams:
            made.begin(stream, "/ebb.agent.v1.AgentLink/Connect")
            made.announce(stream, LARGEST_MESSAGE)
        while len(made.ended) < STREAMS_EACH:
            made.read()
        assert sum(made.granted[stream] > 2 * WINDOW for stream in streams) <= SPEAKING_AT_ONCE


@pytest.mark.parametrize("largest", [LARGEST_SPEC + 2048, LARGEST_MESSAGE - 100])
def test_a_submit_that_is_too_large_is_refused_before_it_is_parsed(database_url: str, largest: int) -> None:
    with Server(database_url) as server:
        submit = server.channel.unary_unary("/ebb.v1.Scheduler/Submit")
        refused = failure(lambda: submit(b"\xff" * largest, timeout=LIMIT))
        assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
        assert refused.text == f"spec: must be at most {LARGEST_SPEC} bytes; the request has {largest}"
        malformed = failure(lambda: submit(b"\xff" * 1000, timeout=LIMIT))
        assert malformed.reason == "MALFORMED", "a small one is parsed"


@pytest.mark.parametrize("method", ["/ebb.v1.Scheduler/Submit", "/ebb.v1.Scheduler/Get", "/ebb.agent.v1.AgentLink/Connect"])
def test_no_message_is_larger_than_two_mib(database_url: str, method: str) -> None:
    with Server(database_url) as server:
        call: Any = server.channel.unary_unary(method)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"x" * (LARGEST_MESSAGE + 1), timeout=LIMIT)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.submit(), "the next call is served"


def test_a_compressed_message_is_not_unpacked(database_url: str) -> None:
    """Two MiB of it may be two GiB of zeros."""
    with Server(database_url) as server:
        submit: Any = server.channel.unary_unary("/ebb.v1.Scheduler/Submit")
        with pytest.raises(grpc.RpcError) as caught:
            submit(bytes(LARGEST_MESSAGE // 2), compression=grpc.Compression.Gzip, timeout=LIMIT)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED, error


def test_a_call_without_a_request_is_refused(database_url: str) -> None:
    with Server(database_url) as server:
        call: Any = server.channel.stream_unary("/ebb.v1.Scheduler/Get")
        refused = failure(lambda: call(iter(()), timeout=LIMIT))
        assert refused.reason == "MALFORMED"


def test_open_methods_are_received_in_turns_and_within_a_second(database_url: str) -> None:
    """Callers that announce a request to a health check and send nothing more do not keep others from theirs."""
    with Server(database_url) as server, connection(server) as made:
        for number in range(STREAMS_EACH - 1):
            made.begin(2 * number + 1, "/grpc.health.v1.Health/Check")
            made.announce(2 * number + 1, LARGEST_MESSAGE)
        made.socket.sendall(_frame(PING, 0, 0, b"12345678"))
        while not made.ponged:
            made.read()
        check: Any = server.channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=LIMIT)
