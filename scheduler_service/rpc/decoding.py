"""Requests are parsed within the call, after the caller was let in."""

import logging
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import DecodeError

from scheduler_service.rpc.interceptors import InvalidArgument
from scheduler_service.rpc.method_table import Call, Context, Method

LOG_INTERVAL = 10.0
"""Seconds. Malformed requests of one method are logged once in this time."""

log = logging.getLogger(__name__)


def decode_requests(method: Method, call: Call) -> Call:
    """Parses requests. The call ends with InvalidArgument where the bytes are no message."""
    refused = _Refused(method.name)

    def parse(data: bytes, context: Context) -> Any:
        try:
            return method.parse(data)
        except DecodeError as error:
            refused.note(str(context.peer()), len(data))
            text = f"the request has {len(data)} bytes that are no message: {error}; was its client made for this service?"
            raise InvalidArgument("MALFORMED", text) from None

    async def decoding(data: bytes, context: Context) -> Any:
        return await call(parse(data, context), context)

    async def decoding_each(stream: AsyncIterator[bytes], context: Context) -> Any:
        async def requests() -> AsyncIterator[Any]:
            async for data in stream:
                yield parse(data, context)

        return await call(requests(), context)

    return decoding_each if method.streams_requests else decoding


class _Refused:
    """Rate-limited logging of one method's malformed requests: a client that sends many must not fill the log."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._logged = -LOG_INTERVAL
        self._more = 0

    def note(self, peer: str, size: int) -> None:
        now = time.monotonic()
        if now - self._logged < LOG_INTERVAL:
            self._more += 1
            return
        more = f"; {self._more} more since the last message about this" if self._more else ""
        log.warning("%s from %s is refused: its %d bytes are no message%s", self._method, unquote(peer), size, more)
        self._logged, self._more = now, 0
