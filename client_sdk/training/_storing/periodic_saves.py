"""When a Checkpointer saves between two stops, and what a training does when such a save fails."""

import pickle
import time
from math import inf
from typing import Literal

OnSaveError = Literal["warn", "raise"]

_BUGS = (
    TypeError,
    AttributeError,
    LookupError,
    NameError,
    ValueError,
    AssertionError,
    NotImplementedError,
    pickle.PicklingError,
)


class Schedule:
    """Every so many seconds, and every so many boundaries. Nothing is due before `begin`."""

    def __init__(self, every_seconds: float | None, every_steps: int | None, in_gang: bool) -> None:
        """`in_gang`: the boundaries are multiples of `every_steps`, and so the same on all ranks."""
        self._every_seconds = inf if every_seconds is None else every_seconds
        self._every_steps = inf if every_steps is None else every_steps
        self._in_gang = in_gang
        self._next_boundary: float = inf
        self._next_time: float = inf
        self._failures = 0
        """The number of failed saves since the last one that succeeded."""

    def is_due(self, boundary: int) -> bool:
        return boundary >= self._next_boundary or time.monotonic() >= self._next_time

    def begin(self, boundary: int) -> None:
        """Start to count at this boundary, now: at the start, or after a save."""
        self._failures = 0
        self.go_on_from(boundary)
        self._next_time = time.monotonic() + self._every_seconds

    def put_off(self, boundary: int, alone: bool) -> None:
        """The save that was due at this boundary has failed. It is tried again at the next one, after two more, after four
        more, and so on, but not less often than without a failure. A rank that is not `alone` saves again when all ranks do."""
        self._failures += 1
        self.go_on_from(boundary)
        self._next_time = time.monotonic() + self._every_seconds
        if alone:
            self._next_boundary = min(self._next_boundary, boundary + pause_after(self._failures))

    def go_on_from(self, boundary: int) -> None:
        """Counts boundaries from this one, which a checkpoint has given."""
        if not self._in_gang or self._every_steps == inf:
            self._next_boundary = boundary + self._every_steps
        else:
            self._next_boundary = (boundary // self._every_steps + 1) * self._every_steps


def pause_after(failures: int) -> int:
    """Return the number of boundaries until a save is retried after this number of failures in a row."""
    return 1 << min(failures - 1, 20)


def check_on_save_error(on_save_error: str) -> None:
    """Raises ValueError for what is no choice."""
    if on_save_error not in ("warn", "raise"):
        raise ValueError(f'on_save_error={on_save_error!r} is unknown; it is "warn" or "raise"')


def is_survived(error: Exception, on_save_error: OnSaveError) -> bool:
    """Whether training continues and saves later. It does if a later save may succeed, as on a full disk; saving a state that
    cannot be pickled never succeeds."""
    return on_save_error == "warn" and not isinstance(error, _BUGS)
