"""The layer around every call of a client: it counts calls, lets them fail as the test wants it, and answers once everything
that the call has begun has happened."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from ebb.v1 import scheduler_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from client_sdk._transport.statuses import ERRORS
from client_sdk.errors import EbbError, Internal, Unavailable
from scheduler_service.rpc.method_table import Call, Context, Method

_STREAMS = ("Watch", "Logs")
_CODES = {error: code for code, error in reversed(ERRORS.items())} | {Internal: grpc.StatusCode.INTERNAL}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure to inject into the next call, or the next `call` of this name: before or after it is carried out."""

    error: EbbError
    call: str | None
    after: bool


class Calls:
    """Used on the event loop only."""

    def __init__(self, settle: Callable[[], Awaitable[None]]) -> None:
        """`settle` returns when nothing is under way any more, and raises what the test's script raised."""
        self.counts: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self.down: EbbError | None = None
        """The error with which every call fails; None: calls are answered."""
        self.streams: set[asyncio.Task[Any]] = set()
        """The watches and followed logs in progress."""
        self.shares: scheduler_pb2.SharesResponse | None = None
        """The answer to `Shares`; None: that of the service."""
        self._settle = settle
        self._cut: set[asyncio.Task[Any]] = set()

    def around(self, method: Method, call: Call) -> Call:
        """A layer of the service."""
        if not method.name.startswith("/ebb.v1."):
            return call
        name = method.name.rpartition("/")[2]
        serve = self._serve_stream if name in _STREAMS else self._serve

        async def serving(request: Any, context: Context) -> Any:
            try:
                return await serve(name, call, request, context)
            except EbbError as error:
                await _abort(context, error)

        return serving

    def fail(self, error: EbbError, call: str | None, after: bool, times: int) -> None:
        """Let the next calls fail."""
        self.failures += [Failure(error, call, after)] * times

    def set_down(self, error: EbbError | None) -> None:
        """Let every call fail, and break every watch; None: answer again."""
        self.down = error
        if error is not None:
            self.cut_streams()

    def cut_streams(self) -> None:
        """Break every watch and log."""
        for task in self.streams:
            self._cut.add(task)
            task.cancel()

    async def _serve(self, name: str, call: Call, request: Any, context: Context) -> Any:
        failure = self._enter(name)
        if name == "Shares" and self.shares is not None:
            first = await anext(request)
            of_site = not scheduler_pb2.SharesRequest.FromString(first).virtual_cluster
            answer = self.shares if of_site else await call(_again(first), context)
        else:
            answer = await call(request, context)
        await self._settle()
        if failure is not None:
            raise failure.error
        return answer

    async def _serve_stream(self, name: str, call: Call, request: Any, context: Context) -> Any:
        self._enter(name)
        task = asyncio.ensure_future(call(request, context))
        self.streams.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if task not in self._cut:
                raise
            raise Unavailable("the fake cluster broke the connection") from None
        finally:
            task.cancel()
            self.streams.discard(task)
            self._cut.discard(task)

    def _enter(self, name: str) -> Failure | None:
        """Count the call and raise what it is to fail with; return the failure if it is to fail afterwards."""
        self.counts[name] += 1
        if self.down is not None:
            raise self.down
        failure = next((f for f in self.failures if f.call in (None, name)), None)
        if failure is not None:
            self.failures.remove(failure)
            if not failure.after:
                raise failure.error
        return failure


async def _again(request: bytes) -> AsyncIterator[bytes]:
    yield request


async def _abort(context: Context, error: EbbError) -> NoReturn:
    code = _CODES[type(error)]
    detail = AnyMessage()
    if error.reason:
        detail.Pack(error_details_pb2.ErrorInfo(reason=error.reason, domain="ebb", metadata=dict(error.metadata)))
    status = status_pb2.Status(code=code.value[0], message=str(error), details=[detail] if error.reason else [])
    trailing = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(code, str(error), trailing_metadata=trailing)
    raise AssertionError("abort always raises")
