"""Simulations on a Dask cluster. Its workers must have the same version of Ebb, and find the files that the cases name."""

import contextlib
import queue
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import dask.config

# Its log lines would break the progress bar; the reports have the errors. It sets up its loggers at import.
dask.config.set({"logging": {"distributed": "critical", "distributed.client": "critical", "bokeh": "critical"}})

from distributed import Client, Future, KilledWorker, get_worker  # noqa: E402

from scheduler_service.sim.experiments.runner_port import (  # noqa: E402
    BadAddress,
    Done,
    Failed,
    Perform,
    Report,
    Told,
    failed_report,
    limit_rate,
)

CONNECT_LIMIT = 10
"""Seconds within which the scheduler must answer."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the workers."""


class _Unwanted(Exception):
    """No client waits for this work any more."""


def _perform(perform: Perform, number: int, work: Any, topic: str) -> Report:
    """Do the work in a worker. An error there is returned as a value, as it is on this machine."""
    worker = get_worker()
    key = worker.get_current_task()

    def tell(over: int, total: int | None) -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise _Unwanted
        worker.log_event(topic, [number, over, total])

    try:
        return Done(number, perform(work, limit_rate(tell)))
    except Exception as error:
        return failed_report(number, error)


class Dask(AbstractContextManager["Dask"]):
    """The workers of a Dask cluster. Each gets as many cases as it has threads; the rest waits here, so that workers that join
    later get their share, and one that dies loses little."""

    def __init__(self, address: str, perform: Perform) -> None:
        try:
            connect: Any = Client  # it has no types
            self._client = connect(address, timeout=CONNECT_LIMIT, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise BadAddress(f"no Dask scheduler answers at {address}: {error}") from None
        self.workers = self._threads()
        self._looked = time.monotonic()
        self._perform = perform
        self._topic = f"ebb-sim-{uuid.uuid4()}"
        self._work: dict[int, Any] = {}
        """All work that has not ended."""
        self._queue: deque[int] = deque()
        self._futures: dict[int, Future[Any]] = {}
        self._suspects: list[int] = []
        """Work whose worker died."""
        self._heard: queue.SimpleQueue[Told | tuple[int, Future[Any]]] = queue.SimpleQueue()
        self._client.subscribe_topic(self._topic, lambda event: self._heard.put(Told(*event[1])))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError, CancelledError, TimeoutError):
            if self._futures:
                self._client.cancel(list(self._futures.values()))
        self._client.close()

    def submit(self, number: int, work: Any) -> None:
        self._work[number] = work
        self._queue.append(number)

    def reports(self) -> Iterator[Report]:
        while self._work:
            yield from self._hand_out()
            try:
                heard = self._heard.get(timeout=LOOK_EVERY)
            except queue.Empty:
                continue
            if isinstance(heard, Told):
                if heard.number in self._futures:
                    yield heard
                continue
            number, future = heard
            if self._futures.pop(number, None) is not None and (report := self._result(number, future)) is not None:
                del self._work[number]
                yield report

    def _hand_out(self) -> Iterator[Report]:
        """Send work to the workers; yield failures for work that can never be done because the cluster is gone."""
        if time.monotonic() - self._looked >= LOOK_EVERY:
            self._looked = time.monotonic()
            try:
                self.workers = self._threads()
            except Exception as error:  # any error of a client that has lost its scheduler
                for number in self._queue:
                    del self._work[number]
                    yield Failed(number, f"the Dask scheduler is gone: {type(error).__name__}: {error}")
                self._queue.clear()
        while self._queue and len(self._futures) < self.workers:
            self._start(self._queue.popleft())
        if self._suspects and not self._queue and not self._futures:
            self._start(self._suspects[0])

    def _threads(self) -> int:
        return sum(self._client.nthreads().values())

    def _start(self, number: int) -> None:
        key, work = f"{self._topic}-{number}-{uuid.uuid4()}", self._work[number]
        future: Any = self._client.submit(_perform, self._perform, number, work, self._topic, key=key, pure=False)
        self._futures[number] = future
        future.add_done_callback(lambda ended: self._heard.put((number, ended)))

    def _result(self, number: int, future: Future[Any]) -> Report | None:
        """Return the report. If the worker died, return None: Dask cannot say whether this work or another caused it. It is
        retried at the end, alone."""
        again = number in self._suspects
        if again:
            self._suspects.remove(number)
        try:
            report: Report = future.result()
        except KilledWorker as error:
            if not again:
                self._suspects.append(number)
                return None
            return Failed(number, f"the process of the Dask worker {error.last_worker.address} died")
        except (Exception, CancelledError) as error:  # it has no Ebb; or the cluster went away
            return Failed(number, f"on the Dask cluster: {type(error).__name__}: {error}")
        return report
