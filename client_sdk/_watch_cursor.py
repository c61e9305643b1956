"""Decides how a watch resumes after a broken connection, and when a wait ends. No I/O."""

import random
import time
from typing import NamedTuple

from client_sdk.errors import DeadlineExceeded, EbbError, NotFound, Unavailable
from client_sdk.models import Job, JobUpdate

BACKOFF_FIRST, BACKOFF_MOST = 0.1, 1.0
"""Seconds: the longest pause after a first failure, and after many."""


def deadline_in(timeout: float | None) -> float | None:
    """Return the `time.monotonic` value at which the timeout expires."""
    return None if timeout is None else time.monotonic() + timeout


def full_jitter(failures: int) -> float:
    """Return a random pause after this number of failures."""
    return random.uniform(0, min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(failures, 10)))


class Connections:
    """The successive connections of one watch or log.

    Connecting first may take `timeout` seconds. A connection that worked and broke is retried forever, or until `deadline`.
    """

    def __init__(self, timeout: float, deadline: float | None) -> None:
        self.deadline = deadline
        patience = time.monotonic() + timeout
        self.patience: float | None = patience if deadline is None else min(patience, deadline)
        """Until when to try for the connection that is to be made now."""
        self._began = 0.0
        self._pause = BACKOFF_FIRST

    def note_connection(self) -> None:
        self.patience, self._began = self.deadline, time.monotonic()

    def pause(self) -> float:
        """How long to leave a scheduler alone that ended the connection: one that takes every connection and drops it must
        not be asked in a tight loop."""
        now = time.monotonic()
        self._pause = BACKOFF_FIRST if now - self._began > BACKOFF_MOST else min(BACKOFF_MOST, self._pause * 2)
        return random.uniform(0, self._pause if self.deadline is None else max(0.0, min(self._pause, self.deadline - now)))


class WatchCursor(Connections):
    """The position of a watch. Each connection continues after the last commit received on the one before."""

    def __init__(self, job_id: int, after_commit: int, timeout: float, deadline: float | None) -> None:
        super().__init__(timeout, deadline)
        self.job_id = job_id
        self.token = after_commit

    def note_update(self, update: JobUpdate) -> JobUpdate:
        self.token = update.commit_no
        return update


class LogPiece(NamedTuple):
    """Some bytes of a run's output, and where they begin in it."""

    run: int
    offset: int
    data: bytes


class LogCourse(Connections):
    """The position in a run's output. Each connection continues after the last byte received on the one before."""

    def __init__(self, job_id: int, run: int, task: int, follow: bool, timeout: float) -> None:
        super().__init__(timeout, None)
        self.job_id = job_id
        self.run = run
        """0 until it is known which one is the current or last."""
        self.task = task
        self.follow = follow
        self.offset = 0
        self.found = False
        """Whether there is such a run."""
        self.over = False
        """Whether all of it was read, and not only the connection has ended."""

    def note_piece(self, piece: LogPiece) -> LogPiece:
        self.found = True
        self.run, self.offset = piece.run, piece.offset + len(piece.data)
        return piece

    def begin_again(self) -> None:
        """Its job has cut it short: what is there now is read from its beginning."""
        self.offset = 0

    def next_run(self) -> None:
        self.run, self.offset = self.run + 1, 0
        self.found = self.over = False


def is_last(update: JobUpdate, job_id: int | None) -> bool:
    """Whether a watch of this job ends with the update."""
    return bool(job_id) and any(job.id == job_id and job.ended for job in update.jobs)


class Waiting:
    """A wait for the end of one job, fed with the updates of a watch."""

    def __init__(self, job_id: int, timeout: float | None) -> None:
        self.job_id = job_id
        self._timeout = timeout
        self._last: Job | None = None

    def find_ended(self, update: JobUpdate) -> Job | None:
        """The job, once it has ended."""
        self._last = next((job for job in update.jobs if job.id == self.job_id), self._last)
        return self._last if self._last is not None and self._last.ended else None

    def needs_a_look(self, error: DeadlineExceeded | Unavailable) -> bool:
        """Whether the job must be fetched to tell how the wait ended: a timeout of 0 looks once.

        Raises the error where it is not that the wait's own time ran out.
        """
        if self._timeout is None or (self._last is None and isinstance(error, Unavailable)):
            raise error
        return self._last is None

    def too_late(self, looked: Job | None) -> Job:
        """The job if that look found it ended. Raises DeadlineExceeded."""
        last = looked or self._last
        assert last is not None
        if last.ended:
            return last
        raise DeadlineExceeded(
            f"job {self.job_id} is still {last.state.name} after {self._timeout:g} s; it goes on", reason="WAIT_TIMEOUT"
        )

    def job_gone_error(self, address: str) -> EbbError:
        """The watch ended, and the job had not."""
        return NotFound(f"job {self.job_id} is gone from the scheduler at {address}")
