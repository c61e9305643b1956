"""Tries of a call. Nearly every first one succeeds: stamina, which takes longer to set up than a request to encode, comes in
where it did not.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType

import stamina

# stamina logs a warning for every retry. Without a logging configuration it would appear on standard error, without the cause.
logging.getLogger("stamina").addHandler(logging.NullHandler())


class Attempts:
    """An iterable of attempts, for `for` or `async for`. Each is a context manager around one try and suppresses what that
    raises, unless `backoff` says that there is no other try; then the exception is raised."""

    def __init__(self, backoff: Callable[[Exception], bool | float]) -> None:
        self._backoff = backoff
        self._began = False
        self._failed: Exception | None = None
        self._rest: AsyncIterator[stamina.Attempt] | None = None

    def __enter__(self) -> None:
        """For the first try."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        self._failed = error if isinstance(error, Exception) else None
        return self._failed is not None

    def __iter__(self) -> Iterator[AbstractContextManager[None]]:
        yield self
        rest = iter(stamina.retry_context(on=self._backoff, attempts=None, timeout=None))
        self._fail_in(next(rest))
        yield from rest

    def __aiter__(self) -> "Attempts":
        return self

    async def __anext__(self) -> AbstractContextManager[None]:
        # Not a generator: one that is abandoned before its end leaves asyncio a task to close it.
        if not self._began:
            self._began = True
            return self
        if self._rest is None:
            self._rest = aiter(stamina.retry_context(on=self._backoff, attempts=None, timeout=None))
            self._fail_in(await anext(self._rest))
        return await anext(self._rest)

    def _fail_in(self, attempt: AbstractContextManager[None]) -> None:
        """Tells stamina of the first try as if it had been its own."""
        with attempt:
            assert self._failed is not None
            raise self._failed
