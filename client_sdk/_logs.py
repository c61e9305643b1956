"""A job's output, read from the file that its node wrote. Works where that path can be read."""

import asyncio
import codecs
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from client_sdk.errors import EbbError, FailedPrecondition, NotFound, PermissionDenied
from client_sdk.models import Job, JobUpdate

if TYPE_CHECKING:
    from client_sdk.client import Client

_CHUNK = 64 * 1024
_LOOK = 0.1
"""Seconds between looks at a file that is being written: nothing tells a reader that a file has grown."""


class _File:
    """A file that grows, read as text. Begins again where it was written anew from its start."""

    def __init__(self, job: Job) -> None:
        self.path = job.log_path
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._file = _open(job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self) -> str:
        """What is there and was not read; empty at the end of the file, as it is now."""
        data = self._file.read(_CHUNK)
        if not data and self._file.seek(0, 2) < self._at:
            self._file.seek(0)
            data = self._file.read(_CHUNK)
        self._at = self._file.tell()
        return self._decoder.decode(data)

    _at = 0


def _first(job: Job) -> _File:
    if job.log_path is None:
        raise FailedPrecondition(
            f"job {job.id} is {job.state.name} and has written nothing yet; follow it to wait for its output",
            reason="NO_OUTPUT",
        )
    return _File(job)


class _Tail:
    """The output of a job over its runs, as far as it is written."""

    def __init__(self) -> None:
        self._file: _File | None = None

    def read(self, job: Job) -> str:
        """What has come since the last read, of the run before to its end first; empty where nothing has."""
        if self._file is not None and job.log_path not in (None, self._file.path):
            if text := self._file.read():
                return text
            self.close()
        if self._file is None and job.log_path is not None:
            self._file = _File(job)
        return self._file.read() if self._file is not None else ""

    @property
    def look_again(self) -> float | None:
        """Seconds after which there may be more; None while only news of the job can bring more."""
        return _LOOK if self._file is not None else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read(job: Job) -> Iterator[str]:
    """The output of the job's current or last run up to now."""
    return _pieces(_first(job))


def _pieces(file: _File) -> Iterator[str]:
    with file:
        while text := file.read():
            yield text


async def read_async(job: Job) -> AsyncGenerator[str, None]:
    """The same, read in a thread: the path may be on a file system that takes its time."""
    with await asyncio.to_thread(_first, job) as file:
        while text := await asyncio.to_thread(file.read):
            yield text


def follow(client: "Client", job_id: int) -> Iterator[str]:
    """The output of the job's current run and of all that come after it, until the job has ended."""
    # A connection of its own, since closing that is what ends the watching thread.
    with client.another() as own, closing(_Tail()) as tail:
        watch = _Watch(own, job_id)
        while True:
            job = watch.latest()
            if text := tail.read(job):
                yield text
            elif job.ended:
                return
            else:
                watch.wait_for_change(job, tail.look_again)


async def follow_async(updates: AsyncGenerator[JobUpdate, None], job: Job) -> AsyncGenerator[str, None]:
    """The same, of a job as it was found; `updates` is a watch of it."""
    changed = asyncio.Event()

    async def keep() -> None:
        nonlocal job
        try:
            async with aclosing(updates):
                async for update in updates:
                    job = next((new for new in update.jobs if new.id == job.id), job)
                    changed.set()
        finally:
            changed.set()

    watching = asyncio.create_task(keep(), name=f"ebb-watch-{job.id}")
    try:
        with closing(_Tail()) as tail:
            while True:
                changed.clear()
                known = job
                if text := await asyncio.to_thread(tail.read, known):
                    yield text
                elif known.ended:
                    return
                elif watching.done():
                    await watching
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), tail.look_again)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


class _Watch:
    """The newest state of one job, kept by a thread."""

    def __init__(self, client: "Client", job_id: int) -> None:
        self._client = client
        self._job_id = job_id
        self._changed = threading.Condition()
        self._job: Job | None = None
        self._error: EbbError | None = None
        threading.Thread(target=self._run, name=f"ebb-watch-{job_id}", daemon=True).start()

    def latest(self) -> Job:
        """The job as last heard of; waits for the first word. Raises what ended the watch."""
        with self._changed:
            self._changed.wait_for(lambda: self._job is not None or self._error is not None)
            if self._error is not None and not (self._job is not None and self._job.ended):
                raise self._error
            assert self._job is not None
            return self._job

    def wait_for_change(self, known: Job, timeout: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._job is not known or self._error is not None, timeout)

    def _run(self) -> None:
        try:
            for update in self._client.watch(self._job_id):
                for job in update.jobs:
                    if job.id == self._job_id:
                        with self._changed:
                            self._job = job
                            self._changed.notify_all()
        except EbbError as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()


def _open(job: Job) -> BinaryIO:
    where = {"node": job.node or "", "path": job.log_path or ""}
    advice = f"its output is at {job.log_path} on node {job.node}; read it there"
    try:
        return Path(job.log_path or "").open("rb")
    except PermissionError as error:
        message = f"job {job.id} belongs to {job.user or 'another user'} and this user may not read its output: {advice}"
        raise PermissionDenied(message, reason="LOG_NOT_READABLE", metadata=where) from error
    except OSError as error:
        message = f"the output of job {job.id} is not on this machine ({error.strerror}): {advice}"
        raise NotFound(message, reason="LOG_NOT_HERE", metadata=where) from error
