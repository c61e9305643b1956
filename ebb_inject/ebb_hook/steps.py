"""`Steps` counts the steps of a process and publishes them in the step file of its task."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import contextmanager
from operator import index
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol

from . import imported_modules
from .step_file import EVALUATING, RUNNING, SAVING, Record
from .step_file_lock import Claim, claim

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

_RETRY_NS = 1_000_000_000
"""Nanoseconds between two attempts to claim the step file."""
_MOST = 1 << 62


class Boundary(Protocol):
    """A place where a program may be parked: `ebb_hook.parking.Parking`."""

    word: memoryview
    seen: int

    def at_boundary(self, counter: Steps) -> None: ...


class Steps:
    """Counts the steps (mini-batches) of this process, and publishes them for the agent of the node. `steps` returns it.

    No method raises or blocks, whatever happens to the file: a training must not fail because of its counter. The first
    problem is logged once. All methods may be called from any thread.

    One process of a task publishes: the first that counts a step. When it ends, the next process that counts a step takes
    over. A forked child is a process like any other.
    """

    def __init__(self, path: str | None, rank: int = 0, log: str = "client_sdk.training") -> None:
        """`path` is the step file; None: nothing is published. `log` is the name of the logger for the first problem."""
        self._log = log
        self._path = path
        self._rank = rank
        self._total = 0
        self._state = RUNNING
        self._complained = False
        self.parking: Boundary | None = None
        """The object that parks the program between two steps when the agent asks for it."""
        self._first = 0
        self._begin_anew()
        _counters.add(self)

    def _begin_anew(self) -> None:
        """Reset the state that belongs to one process."""
        # A signal handler may count while its own thread is counting, so the lock must be reentrant.
        self._lock = threading.RLock()
        self._claim: Claim | None = None
        self._next_try = 0
        self._began = self._changed = self._last = 0
        self._counted = self._untimed = self._busy = 0
        self._squares = 0.0
        self._since = 0
        """When the current step began; 0: unknown, or the program is evaluating or saving."""

    @property
    def step(self) -> int:
        """Steps done, including those of earlier runs if `done` was given."""
        return self._first + self._counted

    @property
    def total(self) -> int | None:
        """Steps of the whole job; None: unknown."""
        return self._total or None

    def advance(self, n: int = 1) -> None:
        """Counts `n` more steps. Call it at the end of each step; it takes about a microsecond."""
        try:
            with self._lock:
                if n != 1 and (n := _whole_number(n, "n")) == 0:
                    return
                now = monotonic_ns()
                if self._since and self._claim is not None:
                    self._add(n, now)
                    self._claim.writer.count(now, self._counted, self._busy, self._squares)
                else:
                    self._advance(n, now)
        except Exception as error:
            self._give_up(error)
        parking = self.parking
        if parking is not None and parking.word[0] != parking.seen:
            parking.at_boundary(self)

    @property
    def done(self) -> int:
        """Steps of the whole job that are done, as far as this process knows."""
        return self._first + self._counted

    def _add(self, n: int, now: int) -> None:
        took = now - self._since
        seconds = took * 1e-9
        self._counted += n
        self._busy += took
        self._squares += seconds * seconds / n
        self._last = self._since = now

    def _advance(self, n: int, now: int) -> None:
        """Count the first step, the first one after an evaluation or a save, and every step that cannot be published."""
        if not self._began:
            self._began = self._changed = now
            self._first += n
            imported_modules.tell()  # by now the program has imported what its steps need
        elif self._since:
            self._add(n, now)
        else:
            self._counted += n
            self._untimed += n
        self._last = now
        self._since = now if self._state == RUNNING else 0
        self._publish(now)

    def evaluating(self) -> AbstractContextManager[None]:
        """Inside this context the program evaluates: its time belongs to no step, and the task is shown as EVALUATING."""
        return self._in_state(EVALUATING)

    def saving(self) -> AbstractContextManager[None]:
        """The same for saving a checkpoint. `Checkpointer` enters this context by itself."""
        return self._in_state(SAVING)

    @contextmanager
    def _in_state(self, state: int) -> Iterator[None]:
        before, spent = self._change(state, 0)
        try:
            yield
        finally:
            self._change(before, spent)

    def _change(self, state: int, spent: int) -> tuple[int, int]:
        """Return the previous state, and how long the current step has taken. `spent` is how long a resumed step had taken."""
        before, taken = self._state, 0
        try:
            with self._lock:
                now = monotonic_ns()
                taken = now - self._since if self._since else 0
                self._state = state
                self._since = now - spent if spent else 0
                self._changed = now
                if self._began:
                    self._publish(now)
        except Exception as error:
            self._give_up(error)
        return before, taken

    def retire(self) -> None:
        """Publish nothing from now on, and leave the file to another counter."""
        with self._lock:
            theirs, self._claim, self._path = self._claim, None, None
            if theirs is not None:
                theirs.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The time inside this context belongs to no step, and the published state does not change."""
        with self._lock:
            taken = monotonic_ns() - self._since if self._since else 0
        try:
            yield
        finally:
            with self._lock:
                self._since = monotonic_ns() - taken if taken else 0

    def _new_loop(self) -> None:
        """Mark the start of the next step as unknown, because a loop over the data begins."""
        self._since = 0

    def _plan(self, total: int | None = None, done: int | None = None) -> None:
        """Set how many steps the job has, and how many are done; None leaves a value as it is."""
        try:
            with self._lock:
                if total is not None:
                    self._total = _whole_number(total, "total")
                if done is not None:
                    self._first = _whole_number(done, "done") - self._counted
                if self._began:
                    self._publish(monotonic_ns())
        except Exception as error:
            self._give_up(error)

    def _publish(self, now: int) -> None:
        if self._claim is None:
            if self._path is None or now < self._next_try:
                return
            self._next_try = now + _RETRY_NS
            with claiming:
                self._claim = claim(self._path)
            if self._claim is None:
                return
        self._claim.writer.write(
            Record(
                pid=os.getpid(),
                rank=self._rank,
                state=self._state,
                began_ns=self._began,
                changed_ns=self._changed,
                first=self._first,
                total=self._total,
                untimed=self._untimed,
                last_ns=self._last,
                counted=self._counted,
                busy_ns=self._busy,
                squares=self._squares,
            )
        )

    def _give_up(self, error: Exception) -> None:
        """Log the first error. The next step tries again."""
        if not self._complained:
            self._complained = True
            import logging

            log = logging.getLogger(self._log)
            log.warning("steps are not shown: %s: %s. The training goes on", type(error).__name__, error)

    def _reset_after_fork(self) -> None:
        """Runs in a forked child: the claim is the parent's. The child claims the file when it counts and the file is free."""
        theirs = self._claim
        self.parking = None
        self._first = self.step
        self._begin_anew()
        self._state = RUNNING
        if theirs is not None:
            theirs.close()


def rank_of(environment: Mapping[str, str]) -> int:
    """The rank of this process in its gang, or 0."""
    text = environment.get("RANK") or environment.get("EBB_TASK") or "0"
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _whole_number(number: int, name: str) -> int:
    """Return the number as an int. Raises ValueError, and TypeError if it is not a whole number."""
    if not 0 <= (found := index(number)) <= _MOST:
        raise ValueError(f"{name}={number!r} must be a whole number from 0 on")
    return found


claiming = threading.RLock()
"""Held while a file is claimed. A child that is forked in the middle of that would keep a descriptor, and with it the lock."""
_counters: weakref.WeakSet[Steps] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    claiming.release()
    for counter in list(_counters):
        counter._reset_after_fork()


os.register_at_fork(before=claiming.acquire, after_in_parent=claiming.release, after_in_child=_after_fork_in_child)
