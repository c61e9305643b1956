"""The wire of `Client`: a channel to each scheduler that it has met, calls that block."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import grpc
from ebb.v1 import scheduler_pb2
from google.protobuf.message import Message

from client_sdk import models
from client_sdk._protobuf import convert
from client_sdk._protobuf.calls import LOGS, WATCH, encode, log_piece, logs_message, watch_message
from client_sdk._requests.jobs import Request
from client_sdk._transport.access import Access
from client_sdk._transport.channels import Line, Options, Terms
from client_sdk._transport.wire import Peer, StreamEnded
from client_sdk._watch_cursor import LogCourse, LogPiece, WatchCursor

T = TypeVar("T")


class Transport:
    """Calls of the scheduler that leads. Safe to use from several threads."""

    def __init__(self, address: str, timeout: float, access: Access, standby_reads: bool = False) -> None:
        self._peer = Peer(address, timeout, access, standby_reads)
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}
        self._left: list[Line] = []
        """Those that were made with files for TLS that were renewed since: calls over them may be under way."""

    def close(self) -> None:
        """Ends every call and watch under way. Safe to repeat."""
        with self._lock:
            self._peer.closed = True
            lines, self._lines, self._left = [*self._lines.values(), *self._left], {}, []
        for line in lines:
            for channel in line.channels:
                channel.close()

    def ask(self, request: Request[T], timeout: float | None = None) -> T:
        """Sends a request and returns what it answers."""
        call = encode(request)
        deadline = self._peer.deadline(timeout)

        def attempt(address: str) -> Any:
            send = self._connect(address).method(call)
            return send(call.message, timeout=self._peer.attempt_time(deadline), metadata=self._peer.metadata(address))

        return call.read(self._retry(call.method, attempt, deadline))

    def watch(self, job_id: int, after_commit: int, deadline: float | None) -> Iterator[models.JobUpdate]:
        """Yield updates until the caller stops iterating, reconnecting as needed."""
        course = WatchCursor(job_id, after_commit, self._peer.timeout, deadline)
        while True:
            stream, message = self._retry(WATCH, partial(self._open, course), course.patience)
            course.note_connection()
            with contextlib.closing(stream):
                while message is not None:
                    yield course.note_update(convert.update(message))
                    message = None
                    with self._peer.may_break():
                        message = next(stream, None)
            time.sleep(course.pause())

    def logs(self, course: LogCourse) -> Iterator[LogPiece]:
        """A run's output, over as many connections as that takes; the first piece is empty."""
        while not course.over:
            stream, message = self._retry(LOGS, partial(self._open_log, course), course.patience, course.follow)
            course.note_connection()
            with contextlib.closing(stream):
                course.over = message is None
                while message is not None:
                    yield course.note_piece(log_piece(message))
                    message = None
                    with self._peer.may_break(LOGS):
                        message = next(stream, None)
                        course.over = message is None
            if not course.over:
                time.sleep(course.pause())

    def _open_log(self, course: LogCourse, address: str) -> "tuple[_Stream, scheduler_pb2.LogsResponse | None]":
        """A stream and its first message; None: it is empty."""
        return self._start_stream(LOGS, logs_message(course), scheduler_pb2.LogsResponse, address, None)

    def _open(self, course: WatchCursor, address: str) -> "tuple[_Stream, scheduler_pb2.SchedulerWatchResponse | None]":
        """A stream and its first message: only then is it known to work."""
        timeout = self._peer.stream_time(course.deadline)
        stream, message = self._start_stream(
            WATCH, watch_message(course), scheduler_pb2.SchedulerWatchResponse, address, timeout
        )
        if message is None:
            stream.close()
            raise StreamEnded
        return stream, message

    def _start_stream(
        self, method: str, request: Message, response: type[Message], address: str, timeout: float | None
    ) -> tuple["_Stream", Any]:
        """A stream and its first message; None: it is empty."""
        stream = _Stream(self._connect(address), method, request, response, timeout, self._peer.metadata(address))
        try:
            return stream, next(stream, None)
        except BaseException:
            stream.close()
            raise

    def _retry(self, method: str, attempt: Callable[[str], T], deadline: float | None, waits: bool = False) -> T:
        with self._peer.translate_errors(method):
            for context in self._peer.attempts(method, deadline, waits):
                with context, self._peer.visit() as address:
                    return attempt(address)
        raise AssertionError("attempts end with an answer or an error")

    def _connect(self, address: str) -> Line:
        with self._lock:
            self._peer.require_open()
            line = self._lines.get(address)
            if (terms := self._peer.terms(line)) is not None:
                if line is not None:
                    self._left.append(line)
                line = self._lines[address] = Line(partial(_channel, address, terms), terms)
            assert line is not None
            return line


def _channel(address: str, terms: Terms, options: Options) -> grpc.Channel:
    if terms.credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, terms.credentials, options=options)


class _Stream:
    """A server's stream with a `close` that ends the call. Safe to repeat."""

    def __init__(self, line: Line, method: str, request: Message, response: type[Message], *how: Any) -> None:
        self._carrier = line.carrier()
        self._closed = False
        timeout, metadata = how
        try:
            self._call = self._carrier.open(method, request, response, timeout=timeout, metadata=metadata)
        except BaseException:
            self._carrier.release()
            raise

    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> Any:
        return next(self._call)

    def close(self) -> None:
        self._call.cancel()
        if not self._closed:
            self._closed = True
            self._carrier.release()
