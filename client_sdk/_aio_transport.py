"""The wire of `AsyncClient`: one channel, calls that are awaited."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import grpc
from ebb.v1 import scheduler_pb2

from client_sdk import _convert, models
from client_sdk._requests import Request
from client_sdk._waiting import Course
from client_sdk._wire import OPTIONS, WATCH, Peer, StreamEnded, encode, watch_message

T = TypeVar("T")


class AsyncTransport:
    """One channel to one scheduler, opened with the first call. Belongs to the event loop of that call."""

    def __init__(self, address: str, timeout: float) -> None:
        self._peer = Peer(address, timeout)
        self._channel: grpc.aio.Channel | None = None

    async def close(self) -> None:
        """Ends every call and watch under way. Safe to repeat."""
        self._peer.closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def ask(self, request: Request[T], timeout: float | None = None) -> T:
        """Sends a request and returns what it answers."""
        call = encode(request)
        deadline = self._peer.deadline(timeout)

        async def attempt() -> Any:
            send = self._connect().unary_unary(
                f"/ebb.v1.{call.method}",
                request_serializer=type(call.message).SerializeToString,
                response_deserializer=call.response.FromString,
            )
            return await send(call.message, timeout=self._peer.attempt_time(deadline))

        return call.read(await self._retry(call.method, attempt, deadline))

    async def watch(self, job_id: int, after_commit: int, deadline: float | None) -> AsyncGenerator[models.JobUpdate, None]:
        """Changes for as long as the caller goes on asking, over as many connections as that takes."""
        course = Course(job_id, after_commit, self._peer.timeout, deadline)
        while True:
            stream, message = await self._retry(WATCH, partial(self._open, course), course.patience)
            course.connected()
            try:
                while message is not None:
                    yield course.received(_convert.update(message))
                    message = None
                    with self._not_closed(WATCH), self._peer.may_break():
                        message = _message(await stream.read())
            finally:
                stream.cancel()
            await asyncio.sleep(course.pause())

    async def _open(self, course: Course) -> "tuple[Any, scheduler_pb2.SchedulerWatchResponse | None]":
        """A stream and its first message: only then is it known to work."""
        open_stream = self._connect().unary_stream(
            f"/ebb.v1.{WATCH}",
            request_serializer=scheduler_pb2.SchedulerWatchRequest.SerializeToString,
            response_deserializer=scheduler_pb2.SchedulerWatchResponse.FromString,
        )
        stream = open_stream(watch_message(course), timeout=self._peer.stream_time(course.deadline))
        try:
            message = _message(await stream.read())
        except BaseException:
            stream.cancel()
            raise
        if message is None:
            raise StreamEnded
        return stream, message

    async def _retry(self, method: str, attempt: Callable[[], Awaitable[T]], deadline: float | None) -> T:
        with self._not_closed(method), self._peer.translated(method):
            async for context in self._peer.attempts(deadline):
                with context:
                    return await attempt()
        raise AssertionError("attempts end with an answer or an error")

    @contextlib.contextmanager
    def _not_closed(self, method: str) -> Iterator[None]:
        """A channel that is closed cancels whoever awaits a call on it. To a task that nobody cancelled, say what happened."""
        try:
            yield
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not self._peer.closed or (task is not None and task.cancelling()):
                raise
            raise self._peer.given_up(method) from error

    def _connect(self) -> grpc.aio.Channel:
        self._peer.require_open()
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._peer.address, options=OPTIONS)
        return self._channel


def _message(read: Any) -> scheduler_pb2.SchedulerWatchResponse | None:
    """What was read from a stream; None at its end."""
    return None if read is grpc.aio.EOF else read
