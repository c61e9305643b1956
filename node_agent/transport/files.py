"""Fetches snapshots, sends results and asks which jobs have ended, by calls of their own outside the stream of the link."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from node_agent.run_state.model import RunKey
from node_agent.transport import convert_files as convert
from node_agent.transport.messages import EndedJobs, ResultPiece, SnapshotPiece
from node_agent.user_files.transfers import Calls, FileRefused

Metadata = tuple[tuple[str, str], ...]

_LIMIT = 60.0
"""Seconds that one piece may take."""


_FINAL = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
)


class FileCalls:
    """The calls of one connection. They raise FileRefused, and AioRpcError if the connection is at fault."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata = ()) -> None:
        self._get = channel.unary_unary(
            convert.GET_SNAPSHOT, request_serializer=convert.encode_snapshot, response_deserializer=convert.decode_snapshot
        )
        self._put = channel.unary_unary(
            convert.PUT_RESULT, request_serializer=convert.encode_result, response_deserializer=convert.decode_stored
        )
        self._ended = channel.unary_unary(
            convert.FIND_ENDED, request_serializer=convert.encode_ended, response_deserializer=convert.decode_ended
        )
        self._metadata = metadata

    async def get(self, job_id: int, digest: str, offset: int) -> tuple[bytes, int]:
        """Fetch a piece of a snapshot from this byte on, which is empty at the end, and the size of the whole."""
        found: tuple[bytes, int] = await self._call(self._get, SnapshotPiece(job_id, digest, offset))
        return found

    async def put(self, key: RunKey, size: int, offset: int, data: bytes) -> int:
        """Store a piece of a result; return how many bytes are then stored."""
        stored: int = await self._call(self._put, ResultPiece(key, size, offset, data))
        return stored

    async def find_ended(self, job_ids: list[int], days: float) -> list[int]:
        """Return those of the jobs that ended at least this many days ago. At most a thousand may be asked for."""
        found: list[int] = await self._call(self._ended, EndedJobs(job_ids, days))
        return found

    async def _call(self, call: Any, message: SnapshotPiece | ResultPiece | EndedJobs) -> Any:
        try:
            return await call(message, timeout=_LIMIT, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() in _FINAL:
                raise FileRefused(error.details() or error.code().name) from error
            raise


@asynccontextmanager
async def transferring(
    transfer: Callable[[Calls], Awaitable[None]], channel: grpc.aio.Channel, metadata: Metadata
) -> AsyncIterator[None]:
    """Let `transfer` use the connection while the context lasts."""
    task = asyncio.ensure_future(transfer(FileCalls(channel, metadata)))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
