"""The one request of a call is received here, after its caller was let in: who shows no token has no memory but a window.

gRPC gives a stream 64 KiB ahead, and more only as its messages are read. So what an unknown caller announces stays with the
caller. The few methods that are open to callers without a token are received in turns, each within a second.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext

from scheduler_service.rpc.access import MAY, OPEN
from scheduler_service.rpc.interceptors import InvalidArgument, invalid
from scheduler_service.rpc.method_table import Call, Context, Method

LARGEST_SPEC = 1 << 20
"""Bytes of the spec of a job."""
LARGEST_MESSAGE = 2 << 20
"""Bytes of a message to the scheduler, of users and agents alike. gRPC refuses a larger one by the length that it announces."""
LARGEST: Mapping[str, tuple[str, int]] = {"/ebb.v1.Scheduler/Submit": ("spec", LARGEST_SPEC + 1024)}
"""Method -> the field that makes its requests large, and the largest request in bytes that is parsed. Parsing takes many
times a request's size."""
OPEN_AT_ONCE = 32
"""Requests of callers without a token that are received at the same time."""
OPEN_LIMIT = 1.0
"""Seconds in which each of these must have arrived."""
_NO_TURN = nullcontext()


class OneRequest:
    """Receives the requests of all methods of a server, for one event loop."""

    def __init__(self) -> None:
        self._open = asyncio.Semaphore(OPEN_AT_ONCE)
        self._open_streams = asyncio.Semaphore(OPEN_AT_ONCE)

    def receive_request(self, method: Method, call: Call) -> Call:
        """Hands on the bytes of the request. Raises InvalidArgument if none came, or if it is too large to be parsed."""
        is_open = MAY.get(method.name, "nobody") is OPEN
        if method.streams_requests:
            return self._in_turn(call) if is_open else call
        field, largest = LARGEST.get(method.name, ("request", LARGEST_MESSAGE))
        turn: AbstractAsyncContextManager[object] = self._open if is_open else _NO_TURN

        async def receiving(requests: AsyncIterator[bytes], context: Context) -> object:
            async with turn:
                try:
                    async with asyncio.timeout(OPEN_LIMIT if is_open else None):
                        data = await anext(aiter(requests), None)
                except TimeoutError:
                    raise InvalidArgument("MALFORMED", f"no request has come within {OPEN_LIMIT:g} s") from None
            if data is None:
                raise InvalidArgument(
                    "MALFORMED", "the call has ended without a request; was its client made for this service?"
                )
            if len(data) > largest:
                raise invalid(field, "bytes.max_len", f"must be at most {LARGEST_SPEC} bytes; the request has {len(data)}")
            return await call(data, context)

        return receiving

    def _in_turn(self, call: Call) -> Call:
        """Serves so many streams without a token at the same time; further ones wait."""

        async def serving(requests: AsyncIterator[bytes], context: Context) -> object:
            async with self._open_streams:
                return await call(requests, context)

        return serving
