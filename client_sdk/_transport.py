"""The wire of `Client`: one channel, calls that block."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import grpc
from ebb.v1 import scheduler_pb2

from client_sdk import _convert, models
from client_sdk._requests import Request
from client_sdk._waiting import Course
from client_sdk._wire import OPTIONS, WATCH, Peer, StreamEnded, encode, watch_message

T = TypeVar("T")


class Transport:
    """One channel to one scheduler, opened with the first call. Safe to use from several threads."""

    def __init__(self, address: str, timeout: float) -> None:
        self._peer = Peer(address, timeout)
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None

    def close(self) -> None:
        """Ends every call and watch under way. Safe to repeat."""
        with self._lock:
            self._peer.closed = True
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def ask(self, request: Request[T], timeout: float | None = None) -> T:
        """Sends a request and returns what it answers."""
        call = encode(request)
        deadline = self._peer.deadline(timeout)

        def attempt() -> Any:
            send = self._connect().unary_unary(
                f"/ebb.v1.{call.method}",
                request_serializer=type(call.message).SerializeToString,
                response_deserializer=call.response.FromString,
            )
            return send(call.message, timeout=self._peer.attempt_time(deadline))

        return call.read(self._retry(call.method, attempt, deadline))

    def watch(self, job_id: int, after_commit: int, deadline: float | None) -> Iterator[models.JobUpdate]:
        """Changes for as long as the caller goes on asking, over as many connections as that takes."""
        course = Course(job_id, after_commit, self._peer.timeout, deadline)
        while True:
            stream, message = self._retry(WATCH, partial(self._open, course), course.patience)
            course.connected()
            with contextlib.closing(stream):
                while message is not None:
                    yield course.received(_convert.update(message))
                    message = None
                    with self._peer.may_break():
                        message = next(stream, None)
            time.sleep(course.pause())

    def _open(self, course: Course) -> "tuple[_Stream, scheduler_pb2.SchedulerWatchResponse | None]":
        """A stream and its first message: only then is it known to work."""
        open_stream = self._connect().unary_stream(
            f"/ebb.v1.{WATCH}",
            request_serializer=scheduler_pb2.SchedulerWatchRequest.SerializeToString,
            response_deserializer=scheduler_pb2.SchedulerWatchResponse.FromString,
        )
        stream = _Stream(open_stream(watch_message(course), timeout=self._peer.stream_time(course.deadline)))
        try:
            message = next(stream, None)
        except BaseException:
            stream.close()
            raise
        if message is None:
            raise StreamEnded
        return stream, message

    def _retry(self, method: str, attempt: Callable[[], T], deadline: float | None) -> T:
        with self._peer.translated(method):
            for context in self._peer.attempts(deadline):
                with context:
                    return attempt()
        raise AssertionError("attempts end with an answer or an error")

    def _connect(self) -> grpc.Channel:
        with self._lock:
            self._peer.require_open()
            if self._channel is None:
                self._channel = grpc.insecure_channel(self._peer.address, options=OPTIONS)
            return self._channel


class _Stream:
    """A server's stream with a `close` that ends the call."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> "_Stream":
        return self

    def __next__(self) -> scheduler_pb2.SchedulerWatchResponse:
        message: scheduler_pb2.SchedulerWatchResponse = next(self._call)
        return message

    def close(self) -> None:
        self._call.cancel()
