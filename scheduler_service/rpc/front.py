"""What the gRPC services serve from: whoever leads at the moment, and the database for what has ended."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from scheduler_service.core.values import Micros
from scheduler_service.run.dispatch import Dispatch
from scheduler_service.run.ports import Reader
from scheduler_service.run.service import NotLeading, Service

P = ParamSpec("P")
T = TypeVar("T")

READERS = 5
"""Queries at once: as many as there are connections to read on."""


class Leading:
    """What there is while this scheduler leads."""

    def __init__(self, service: Service, dispatch: Dispatch, reader: Reader, cluster_id: str, epoch: int) -> None:
        self.service = service
        self.view = service.view
        self.dispatch = dispatch
        self.reader = reader
        self.cluster_id = cluster_id
        self.epoch = epoch
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="reader")

    async def read(self, query: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a query of the reader off the loop, on threads that nothing else waits for."""
        call = partial(query, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    def close(self) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)


class Front:
    """Holds the Leading of the moment; handlers ask for it at each call."""

    def __init__(self, user: str, default_grace_us: Micros, heartbeat_seconds: float, silent_after_seconds: float) -> None:
        self.user = user
        self.default_grace_us = default_grace_us
        self.heartbeat_seconds = heartbeat_seconds
        self.silent_after_seconds = silent_after_seconds
        self._leading: Leading | None = None

    @property
    def leading(self) -> Leading:
        """Raises NotLeading."""
        if self._leading is None:
            raise NotLeading
        return self._leading

    def lead(self, leading: Leading | None) -> None:
        self._leading = leading
