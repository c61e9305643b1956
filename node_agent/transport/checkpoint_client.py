"""Another node's agent, as a source of checkpoints."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from node_agent.checkpoints.fetched_files import SourceRefuses
from node_agent.checkpoints.folders import Described, SavedFile
from node_agent.checkpoints.pieces import Changed, Piece
from node_agent.transport import convert_checkpoints as convert
from node_agent.transport.security import Security

_ANSWER = 10.0
"""Seconds that a description, or the next piece of a file, may take."""
_OPTIONS = (
    ("grpc.keepalive_time_ms", 2_500),
    ("grpc.keepalive_timeout_ms", 2_500),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 500),
)
_FINAL = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)


class CheckpointSource:
    """A connection, made at the first call. Raises SourceRefuses, Changed, and AioRpcError or OSError for connection errors."""

    def __init__(
        self, node: str, address: str, cluster: Callable[[], str], key: Callable[[], bytes], security: Security
    ) -> None:
        self._key = key
        # An agent's certificate names its node, since its address may change.
        options = (*_OPTIONS, ("grpc.ssl_target_name_override", node)) if security.tls_ca is not None else _OPTIONS
        self._channel = security.channel(address, options)
        self._describe: Any = self._channel.unary_unary(
            convert.DESCRIBE,
            request_serializer=lambda job_id: convert.encode_asked(cluster(), job_id),
            response_deserializer=convert.decode_described,
        )
        self._fetch: Any = self._channel.unary_stream(
            convert.FETCH,
            request_serializer=lambda asked: convert.encode_wanted(cluster(), *asked),
            response_deserializer=convert.decode_piece,
        )

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._key().hex()}"),)

    async def describe(self, job_id: int) -> Described:
        try:
            described: Described = await self._describe(job_id, timeout=_ANSWER, metadata=self._metadata())
        except grpc.aio.AioRpcError as error:
            raise _translate_error(error) from error
        return described

    async def pieces(self, job_id: int, file: SavedFile, offset: int) -> AsyncIterator[Piece]:
        call: Any = self._fetch((job_id, file, offset), metadata=self._metadata())
        try:
            while True:
                async with asyncio.timeout(_ANSWER):
                    piece = await call.read()
                if piece is grpc.aio.EOF:
                    return
                yield piece
        except grpc.aio.AioRpcError as error:
            raise _translate_error(error) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        await self._channel.close()


def _translate_error(error: grpc.aio.AioRpcError) -> Exception:
    said = error.details() or error.code().name
    if error.code() in _FINAL:
        return SourceRefuses(said)
    if error.code() is grpc.StatusCode.ABORTED:
        return Changed(said)
    return ConnectionError(said)
