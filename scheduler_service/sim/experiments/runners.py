"""Runners of simulations: on the cores of this machine, or on a Dask cluster. Both have the same interface.

A runner is given a function that another process can import, and pieces of work. It reports in any order; a piece that fails,
or whose process dies, is one report among others. Leaving its context stops all work in progress.

Workers of this machine are plain processes with a pipe each, rather than a pool: it is then known which work killed a worker,
and a worker whose parent is gone reads the end of its pipe and exits.
"""

import contextlib
import multiprocessing
import os
import re
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from types import TracebackType
from typing import Any, NamedTuple

from scheduler_service.sim.experiments.runner_port import (
    BadAddress,
    Done,
    Failed,
    Perform,
    Report,
    Runner,
    Told,
    failed_report,
    limit_rate,
)


def runner(on: str, perform: Perform) -> AbstractContextManager[Runner]:
    """Make the runner for `on`: local (all cores), local[N], or the address of a Dask scheduler. Raises BadAddress."""
    if found := re.fullmatch(r"local(?:\[(\d+)\])?", on):
        workers = int(found[1] or len(os.sched_getaffinity(0)))
        if workers < 1:
            raise BadAddress("local[0] would do nothing: take local[1], or more")
        return Local(workers, perform)
    if re.fullmatch(r"[a-z]+://.+:\d+|inproc://.+", on):
        from scheduler_service.sim.experiments.dask_runner import Dask  # it takes seconds to import

        return Dask(on, perform)
    raise BadAddress(f"{on!r} is no place to run: take local, local[N], or a Dask scheduler's address such as tcp://host:8786")


def _serve(pipe: Connection, perform: Perform) -> None:
    """The loop of a worker. It ends with its parent, which also handles Ctrl-C."""
    try:
        while True:
            number, work = pipe.recv()
            try:
                tell = limit_rate(lambda over, of, n=number: pipe.send(Told(n, over, of)))  # type: ignore[misc]
                report: Report = Done(number, perform(work, tell))
            except BrokenPipeError:
                return
            except Exception as error:
                report = failed_report(number, error)
            pipe.send(report)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class _Worker(NamedTuple):
    process: SpawnProcess
    pipe: Connection


class Local(AbstractContextManager["Local"]):
    """Processes on this machine. They are started when there is work, and each does one piece at a time."""

    def __init__(self, workers: int, perform: Perform) -> None:
        self.workers = workers
        self._perform = perform
        self._context: SpawnContext = multiprocessing.get_context("spawn")
        self._queue: deque[tuple[int, Any]] = deque()
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, int]] = {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        workers = [*self._idle, *(worker for worker, _ in self._busy.values())]
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()
            worker.pipe.close()

    def submit(self, number: int, work: Any) -> None:
        self._queue.append((number, work))

    def reports(self) -> Iterator[Report]:
        while self._queue or self._busy:
            while self._queue and len(self._busy) < self.workers:
                self._hand_out(*self._queue.popleft())
            for pipe in wait(list(self._busy)):
                assert isinstance(pipe, Connection)
                yield self._receive_report(pipe)

    def _hand_out(self, number: int, work: Any) -> None:
        worker = self._idle.pop() if self._idle else self._start()
        self._busy[worker.pipe] = worker, number
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it died, which reading from it will tell
            worker.pipe.send((number, work))

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._perform), daemon=True)
        # A child inherits its parent's mask, so that it ignores Ctrl-C, which the terminal sends to all, from its start. The
        # tracker would start with the first child, unless it runs already, and clear the mask again.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return _Worker(process, ours)

    def _receive_report(self, pipe: Connection) -> Report:
        worker, number = self._busy[pipe]
        try:
            report: Report = pipe.recv()
        except (EOFError, ConnectionResetError):
            del self._busy[pipe]
            pipe.close()
            worker.process.join()
            return Failed(number, f"its process ended with {_status(worker.process.exitcode)}")
        if not isinstance(report, Told):
            del self._busy[pipe]
            self._idle.append(worker)
        return report


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        hint = ", perhaps for want of memory" if code == -signal.SIGKILL else ""
        return f"{signal.Signals(-code).name}{hint}"
    return f"status {code}"
