"""Serves the checkpoints of this node to the agents of other nodes.

Callers show the transfer key of the cluster, which the scheduler gives only to agents. If the link to the scheduler is
encrypted, this is as well, by the agent's own certificate; an agent without one serves no checkpoints.
"""

import asyncio
import hmac
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc.aio

from node_agent.checkpoints.folders import CheckpointFolders, Described, SavedFile, TooManyFiles, is_as_described
from node_agent.checkpoints.pieces import Changed, Piece, pieces
from node_agent.transport import convert_checkpoints as convert
from node_agent.transport.security import Security

log = logging.getLogger(__name__)

PORT_FILE = "checkpoint.port"
"""File in the state directory: the port of the agent before this one, which other nodes know."""
_OPTIONS = (
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.so_reuseport", 0),  # so that another agent with this port is detected
)


class CheckpointServer:
    """The server of one agent. `key` gives the transfer key, or nothing before the first welcome; `modules` what the last run
    of a job has imported here, and `would_dump` whether CRIU would dump the job's run if it had to move."""

    def __init__(
        self,
        folders: CheckpointFolders,
        key: Callable[[], bytes],
        modules: Callable[[int], Sequence[str]],
        would_dump: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._folders = folders
        self._key = key
        self._modules = modules
        self._would_dump = would_dump
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int, security: Security, state: Path) -> int:
        """Listen, on the previous port if none is given (0); return the port, or 0 if checkpoints cannot be served safely.
        Raises OSError."""
        self._server = server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._handlers(),))
        file = state / PORT_FILE
        before = 0
        with suppress(OSError, ValueError):
            before = int(file.read_text())
        credentials = security.serving()
        for candidate in dict.fromkeys((port,) if port else (before, 0)):
            address = f"[{host}]:{candidate}" if ":" in host else f"{host}:{candidate}"
            try:
                bound = (
                    server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
                )
            except RuntimeError:
                continue
            if bound:
                await server.start()
                with suppress(OSError):
                    file.write_text(str(bound))
                return int(bound)
        raise OSError(f"no port of {host} can be listened at" + (f" (port {port} is in use)" if port else ""))

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    def _handlers(self) -> grpc.GenericRpcHandler:
        calls: dict[str, Any] = {
            "Describe": grpc.unary_unary_rpc_method_handler(self._describe, convert.decode_asked, convert.encode_described),
            "Fetch": grpc.unary_stream_rpc_method_handler(self._fetch, convert.decode_wanted, convert.encode_piece),
        }
        return grpc.method_handlers_generic_handler(convert.SERVICE, calls)

    async def _admit(self, context: Any) -> None:
        key = self._key()
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not key:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the scheduler has not welcomed this agent yet: try again")
        if not hmac.compare_digest(str(shown), f"Bearer {key.hex()}"):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "this is not the transfer key of the cluster")

    async def _describe(self, asked: tuple[str, int], context: Any) -> Described:
        await self._admit(context)
        modules, dumped = tuple(self._modules(asked[1])), self._would_dump(asked[1])
        try:
            described = await asyncio.to_thread(self._folders.describe, *asked, modules)
            return described._replace(would_dump=dumped)
        except TooManyFiles as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except OSError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the folder cannot be read: {error.strerror}")
        raise AssertionError("abort raises")

    async def _fetch(self, wanted: tuple[str, int, SavedFile, int], context: Any) -> AsyncIterator[Piece]:
        await self._admit(context)
        cluster_id, job_id, file, offset = wanted
        try:
            descriptor = await asyncio.to_thread(self._folders.open, cluster_id, job_id, file.path)
        except OSError as error:
            await context.abort(grpc.StatusCode.ABORTED, f"{file.path} cannot be read: {error.strerror or error}")
            return
        try:
            if not is_as_described(descriptor, file) or not 0 <= offset <= file.size:
                await context.abort(grpc.StatusCode.ABORTED, f"{file.path} has changed")
            async for piece in pieces(descriptor, file.size, offset):
                yield piece
            if not is_as_described(descriptor, file):
                await context.abort(grpc.StatusCode.ABORTED, f"{file.path} has changed")
        except Changed as error:
            await context.abort(grpc.StatusCode.ABORTED, f"{file.path}: {error}")
        except OSError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{file.path} cannot be read: {error.strerror}")
        finally:
            os.close(descriptor)
