"""Sends logs that the scheduler asks for, each by a call of its own outside the stream of the link.

A piece is read when the call has taken the last one. So a reader that stops reading also stops the reading of the file here.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import grpc.aio

from node_agent.processes.logs import LogRefused
from node_agent.transport import convert
from node_agent.transport.messages import LogPiece, LogRequest

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Maximum logs that are sent at the same time; more are refused."""

BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)
"""Errors that the library raises when a stream breaks."""

Metadata = tuple[tuple[str, str], ...]
Source = Callable[[LogRequest], AsyncGenerator[bytes, None]]


class LogCalls:
    """The calls of one connection. An error in one of them ends only that one."""

    def __init__(self, channel: grpc.aio.Channel, source: Source, metadata: Metadata = ()) -> None:
        self._open = channel.stream_unary(
            convert.SEND_LOG, request_serializer=convert.encode_log, response_deserializer=convert.decode_nothing
        )
        self._source = source
        self._metadata = metadata
        self._sending: set[asyncio.Task[None]] = set()

    def answer(self, request: LogRequest) -> None:
        """Begin to send a log; do not wait."""
        source = self._source if len(self._sending) < AT_ONCE else _too_many
        task = asyncio.create_task(self._send(request, source), name=f"log {request.key}")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def close(self) -> None:
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, request: LogRequest, source: Source) -> None:
        call: Any = self._open(metadata=self._metadata)
        # Writing may have to wait for the job to write something; noticing that the reader has gone must not.
        tasks = [asyncio.create_task(_write(call, request, source)), asyncio.create_task(call.code())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _write(call: Any, request: LogRequest, source: Source) -> None:
    """Make one call, until the scheduler has taken the whole log."""
    id_ = request.id
    try:
        try:
            async with aclosing(source(request)) as pieces:
                async for piece in pieces:
                    await call.write(LogPiece(id_, piece))
                    id_ = ""
            await call.write(LogPiece(id_, end=True))
        except LogRefused as refused:
            await call.write(LogPiece(id_, error=f"{refused.reason}: {refused}"))
        except BROKEN:
            raise
        except Exception:
            log.exception("run %s: its log could not be sent", request.key)
            await call.write(LogPiece(id_, error="LOG_UNREADABLE: the agent failed at it, and its own log tells how"))
        await call.done_writing()
        await call.code()
    except BROKEN as error:
        log.debug("run %s: its log is not read any more (%r)", request.key, error)


async def _too_many(_: LogRequest) -> AsyncGenerator[bytes, None]:
    raise LogRefused("TOO_MANY_LOGS", f"its node sends {AT_ONCE} logs already; try again later")
    yield b""
