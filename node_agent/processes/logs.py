"""The log of a run: found by the run's name, read piece by piece, and followed until the run has ended.

Threads open and read files, because a disk may be slow. A file that is being written is polled, since nothing announces
that it has grown; `wake` announces the end of its run, and the file is then read once more.
"""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from node_agent.run_state.model import RunKey, RunPhase, RunRecord

T = TypeVar("T")

PIECE = 64 * 1024
"""Maximum bytes of a piece."""
_FIRST_LOOK, _LONGEST_LOOK = 0.1, 1.0
"""Seconds between two looks at a file: while it grows, and when it has not for a while."""
_READERS = 4
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR})


class LogRefused(Exception):
    """The log, or the rest of it, is not available: `reason` is a stable name, the message explains."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Logs:
    """The logs of one agent's runs. For the event loop only.

    `find` looks up the record of a run. `path` says where its log is, and may search for it: no path comes from outside.
    """

    def __init__(self, find: Callable[[RunKey], RunRecord | None], path: Callable[[RunKey], Path]) -> None:
        self._find = find
        self._path = path
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="log")
        self._listening: dict[asyncio.Event, tuple[RunKey, RunPhase | None]] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def wake(self) -> None:
        """To be called when a run has started or ended."""
        for event, (key, phase) in self._listening.items():
            if self._phase(key) is not phase:
                event.set()

    async def read(self, key: RunKey, offset: int, follow: bool) -> AsyncGenerator[bytes, None]:
        """Yield the log from a byte on: to its present end, or (`follow`) until the run has ended.

        The first piece is empty: it says that the log was found, or (`follow`) is awaited. Raises LogRefused with
        NOT_STARTED, LOG_GONE, LOG_UNREADABLE, or OFFSET if the log has no such byte (any more).
        """
        with self._listen(key) as listener:
            told = False
            while True:
                over = self._has_ended(key)  # first: else a run might start and end unseen while its log is searched
                if (file := await self._open(key)) is not None or over:
                    break
                if not follow:
                    raise LogRefused("NOT_STARTED", "it has written nothing yet; follow it to wait for its output")
                if not told:
                    yield b""
                told = True
                await listener.wait(_LONGEST_LOOK)
            if file is None:  # it ended and had never started
                _check_offset(offset, 0)
                if not told:
                    yield b""
                return
            try:
                size = await self._in_thread(partial(file.go_to, offset))
                if not told:
                    yield b""
                reading = self._read_to_end(key, file, listener) if follow else self._up_to(size - offset, file)
                async with aclosing(reading):
                    async for piece in reading:
                        yield piece
            finally:
                with suppress(RuntimeError):  # the agent has ended
                    self._threads.submit(file.close)

    async def _up_to(self, count: int, file: "_File") -> AsyncGenerator[bytes, None]:
        while count > 0 and (data := await self._in_thread(partial(file.read, min(count, PIECE)))):
            count -= len(data)
            yield data

    async def _read_to_end(self, key: RunKey, file: "_File", listener: "_Listener") -> AsyncGenerator[bytes, None]:
        pause = _FIRST_LOOK
        while True:
            over = self._has_ended(key)  # first: what is read after it is all that was written
            data = await self._in_thread(partial(file.read, PIECE))
            if data:
                pause = _FIRST_LOOK
                yield data
            elif over:
                return
            if not over and len(data) < PIECE:  # also after a line or two, or a job that writes many is read line by line
                await listener.wait(pause)
                pause = pause if data else min(2 * pause, _LONGEST_LOOK)

    async def _open(self, key: RunKey) -> "_File | None":
        """Open the log; None if the run has no process (yet), and so no log. Raises LogRefused."""
        record = self._find(key)  # first: if there was a process, a missing file has been removed
        try:
            return await self._in_thread(lambda: _File(self._path(key)))
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise LogRefused("LOG_UNREADABLE", f"its log cannot be read now ({error.strerror})") from error
            if record is None or record.pid:
                raise LogRefused("LOG_GONE", "its log is not there any more") from error
            return None

    async def _in_thread(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)

    def _phase(self, key: RunKey) -> RunPhase | None:
        record = self._find(key)
        return None if record is None else record.phase

    def _has_ended(self, key: RunKey) -> bool:
        return self._phase(key) in (None, RunPhase.ENDED)

    @contextmanager
    def _listen(self, key: RunKey) -> Iterator["_Listener"]:
        event = asyncio.Event()

        def note() -> None:
            event.clear()
            self._listening[event] = key, self._phase(key)

        note()
        try:
            yield _Listener(event, note)
        finally:
            del self._listening[event]


class _Listener:
    """Waits for a time, or until the run's phase differs from that at the last call."""

    def __init__(self, event: asyncio.Event, note: Callable[[], None]) -> None:
        self._event = event
        self._note = note

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._note()


class _File:
    """An open log. Closing it does not take its descriptor away from a thread that still reads.

    A job may replace its log by anything: if it is no plain file, or lies elsewhere, it counts as missing.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            self.close()
            raise OSError(errno.ENOENT, "not a plain file")

    def go_to(self, offset: int) -> int:
        """Seek to the offset; return the size. Raises LogRefused if the file is shorter than that."""
        with self._reading():
            size = os.fstat(self._descriptor).st_size
            _check_offset(offset, size)
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            return size

    def read(self, count: int) -> bytes:
        """Read on; empty at the present end. Raises LogRefused if the file was truncated since."""
        with self._reading():
            data = os.read(self._descriptor, count)
            if not data:
                _check_offset(os.lseek(self._descriptor, 0, os.SEEK_CUR), os.fstat(self._descriptor).st_size)
            return data

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    __del__ = close  # if it was opened for a caller that had gone by then

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except OSError as error:
                raise LogRefused("LOG_UNREADABLE", f"its log cannot be read now ({error.strerror})") from error


def _check_offset(offset: int, size: int) -> None:
    if offset > size:
        raise LogRefused("OFFSET", f"its log has {size} bytes, and none at {offset}; read it from its beginning")
