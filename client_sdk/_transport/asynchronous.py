"""The wire of `AsyncClient`: a channel to each scheduler that it has met, calls that are awaited."""

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import grpc
from ebb.v1 import scheduler_pb2
from google.protobuf.message import Message

from client_sdk import errors, models
from client_sdk._protobuf import convert
from client_sdk._protobuf.calls import LOGS, WATCH, encode, log_piece, logs_message, watch_message
from client_sdk._requests.jobs import Request
from client_sdk._transport.access import Access
from client_sdk._transport.channels import Line, Options, Terms
from client_sdk._transport.wire import Peer, StreamEnded
from client_sdk._watch_cursor import LogCourse, LogPiece, WatchCursor

T = TypeVar("T")

_connected: "weakref.WeakSet[AsyncTransport]" = weakref.WeakSet()
_inherited = False
"""Whether this process was forked while some were connected: it has their state, and not the thread that gRPC hears them by."""


def _after_fork_in_child() -> None:
    global _inherited
    _inherited = _inherited or len(_connected) > 0


os.register_at_fork(after_in_child=_after_fork_in_child)


class AsyncTransport:
    """Calls of the scheduler that leads. Belongs to the event loop of the first call."""

    def __init__(self, address: str, timeout: float, access: Access, standby_reads: bool = False) -> None:
        self._peer = Peer(address, timeout, access, standby_reads)
        self._lines: dict[str, Line] = {}
        self._left: list[Line] = []
        """As of `Transport`."""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def close(self) -> None:
        """Ends every call and watch under way. Safe to repeat."""
        self._peer.closed = True
        _connected.discard(self)
        lines, self._lines, self._left = [*self._lines.values(), *self._left], {}, []
        for line in lines:
            for channel in line.channels:
                await channel.close()

    async def ask(self, request: Request[T], timeout: float | None = None) -> T:
        """Sends a request and returns what it answers."""
        call = encode(request)
        deadline = self._peer.deadline(timeout)

        async def attempt(address: str) -> Any:
            send = self._connect(address).method(call)
            return await send(call.message, timeout=self._peer.attempt_time(deadline), metadata=self._peer.metadata(address))

        return call.read(await self._retry(call.method, attempt, deadline))

    async def watch(self, job_id: int, after_commit: int, deadline: float | None) -> AsyncGenerator[models.JobUpdate, None]:
        """Yield updates until the caller stops iterating, reconnecting as needed."""
        course = WatchCursor(job_id, after_commit, self._peer.timeout, deadline)
        while True:
            stream, message = await self._retry(WATCH, partial(self._open, course), course.patience)
            course.note_connection()
            try:
                while message is not None:
                    yield course.note_update(convert.update(message))
                    message = None
                    with self._not_closed(WATCH), self._peer.may_break():
                        message = _message(await stream.read())
            finally:
                stream.cancel()
            await asyncio.sleep(course.pause())

    async def logs(self, course: LogCourse) -> AsyncGenerator[LogPiece, None]:
        """A run's output, over as many connections as that takes; the first piece is empty."""
        while not course.over:
            stream, message = await self._retry(LOGS, partial(self._open_log, course), course.patience, course.follow)
            course.note_connection()
            try:
                course.over = message is None
                while message is not None:
                    yield course.note_piece(log_piece(message))
                    message = None
                    with self._not_closed(LOGS), self._peer.may_break(LOGS):
                        message = _message(await stream.read())
                        course.over = message is None
            finally:
                stream.cancel()
            if not course.over:
                await asyncio.sleep(course.pause())

    async def _open_log(self, course: LogCourse, address: str) -> "tuple[_Stream, scheduler_pb2.LogsResponse | None]":
        """A stream and its first message; None: it is empty."""
        return await self._start_stream(LOGS, logs_message(course), scheduler_pb2.LogsResponse, address, None)

    async def _open(self, course: WatchCursor, address: str) -> "tuple[_Stream, scheduler_pb2.SchedulerWatchResponse | None]":
        """A stream and its first message: only then is it known to work."""
        timeout = self._peer.stream_time(course.deadline)
        stream, message = await self._start_stream(
            WATCH, watch_message(course), scheduler_pb2.SchedulerWatchResponse, address, timeout
        )
        if message is None:
            stream.cancel()
            raise StreamEnded
        return stream, message

    async def _start_stream(
        self, method: str, request: Message, response: type[Message], address: str, timeout: float | None
    ) -> tuple["_Stream", Any]:
        """A stream and its first message; None: it is empty."""
        stream = _Stream(self._connect(address), method, request, response, timeout, self._peer.metadata(address))
        try:
            return stream, _message(await stream.read())
        except BaseException:
            stream.cancel()
            raise

    async def _retry(
        self, method: str, attempt: Callable[[str], Awaitable[T]], deadline: float | None, waits: bool = False
    ) -> T:
        with self._not_closed(method), self._peer.translate_errors(method):
            async for context in self._peer.attempts(method, deadline, waits):
                with context, self._peer.visit() as address:
                    return await attempt(address)
        raise AssertionError("attempts end with an answer or an error")

    @contextlib.contextmanager
    def _not_closed(self, method: str) -> Iterator[None]:
        """Closing a channel cancels tasks that await calls on it. In a task that was not itself cancelled, raise an error."""
        try:
            yield
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not self._peer.closed or (task is not None and task.cancelling()):
                raise
            raise self._peer.cancelled_error(method) from error

    def _connect(self, address: str) -> Line:
        self._peer.require_open()
        if _inherited:
            raise errors.FailedPrecondition(
                "this process was forked while an AsyncClient was connected, and no other would ever hear an answer in it; "
                "use Client here, or start the process by multiprocessing's spawn"
            )
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is not loop:
            raise errors.FailedPrecondition("this AsyncClient belongs to another event loop; make one in each")
        line = self._lines.get(address)
        if (terms := self._peer.terms(line)) is not None:
            if line is not None:
                self._left.append(line)
            line = self._lines[address] = Line(partial(_channel, address, terms), terms)
            _connected.add(self)
        assert line is not None
        return line


def _channel(address: str, terms: Terms, options: Options) -> grpc.aio.Channel:
    if terms.credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, terms.credentials, options=options)


class _Stream:
    """A server's stream. To cancel it ends the call, and is safe to repeat."""

    def __init__(self, line: Line, method: str, request: Message, response: type[Message], *how: Any) -> None:
        self._carrier = line.carrier()
        self._cancelled = False
        timeout, metadata = how
        try:
            self._call = self._carrier.open(method, request, response, timeout=timeout, metadata=metadata)
        except BaseException:
            self._carrier.release()
            raise

    async def read(self) -> Any:
        return await self._call.read()

    def cancel(self) -> None:
        self._call.cancel()
        if not self._cancelled:
            self._cancelled = True
            self._carrier.release()


def _message(read: Any) -> Any:
    """Return what was read from a stream, or None at its end."""
    return None if read is grpc.aio.EOF else read
