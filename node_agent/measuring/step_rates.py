"""How fast a run advances, computed from the records that its program publishes. Pure.

Gandiva (section 4) compares the mini-batch time of a job before and after a decision to tell whether the decision pays. Here
the mini-batch time is the mean of the last minute, or of the last 20 steps if a minute has fewer, with its spread.
"""

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from math import ceil, sqrt

from ebb_inject.ebb_hook.step_file import EVALUATING, RUNNING, SAVING, Record
from node_agent.run_state.model import RunKey

WINDOW = 60.0
"""Minimum seconds over which the current rate is computed, unless set otherwise."""
FEWEST = 20
"""Minimum steps over which the current rate is computed: as many as Gandiva compares."""
STALLED_AFTER = 60.0
"""A run is stalled if it does no step for at least this many seconds,"""
STALLED_STEPS = 10
"""and for at least as long as this many steps take."""
SHORTEST = 1e-6
"""Seconds of a mini-batch. Anything shorter is not a measurement."""
LONGEST = 10 * 366 * 86400.0
"""The longest duration that is reported, in seconds."""
FASTEST = 1e9
"""Steps a second: the highest rate that is reported."""


class StepState(IntEnum):
    """Values as in ebb.v1.StepState."""

    RUNNING = 1
    EVALUATING = 2
    SAVING = 3
    STALLED = 4
    PARKED = 5


_STATES = {RUNNING: StepState.RUNNING, EVALUATING: StepState.EVALUATING, SAVING: StepState.SAVING}


@dataclass(frozen=True, slots=True)
class RunSteps:
    """The progress of a task of a run, and how fast it advances. Times are in seconds. None: too few steps to say."""

    key: RunKey
    step: int
    """Steps done, including those of earlier runs if the program knows them."""
    total: int | None
    """Steps of the whole job; None if the program has not given it."""
    state: StepState
    since_step: float
    """Time since the last step ended."""
    rate: float | None = None
    """Steps per second now, in wall-clock time: evaluating and saving included."""
    rate_error: float | None = None
    """The standard error of the rate, from the spread of the mini-batch time."""
    rate_since_start: float | None = None
    """Steps per second since the first step of the process ended."""
    mini_batch: float | None = None
    """The mean duration of a step now, without the time spent evaluating or saving."""
    spread: float | None = None
    """The standard deviation of that duration."""
    measured: int = 0
    """The number of steps from which these two are computed."""
    remaining: float | None = None
    """Time until the last step, at the current mini-batch time, with the average share of other work since the start."""


class Advance:
    """The records of one run, as far back as the current rate needs them."""

    def __init__(self, key: RunKey, window: float = WINDOW) -> None:
        """`window`: minimum seconds over which the current rate is computed."""
        self._key = key
        self._window = window
        self._seen: deque[Record] = deque()
        self._interrupted: Record | None = None
        """The last record before the run was stopped in the middle of a step."""

    def note_interruption(self) -> None:
        """Note that the run was stopped in the middle of a step: that step took longer than the program worked on it, and
        earlier records cannot be compared with later ones."""
        if self._seen:
            self._interrupted = self._seen[-1]

    def add(self, record: Record, cycle: float = 0.0) -> None:
        """Add the record that the program published last, which may be the same as before. `cycle`: the seconds in which each
        of the runs that take turns has one; the current rate is that of whole cycles."""
        seen = self._seen
        if (before := self._interrupted) is not None and _follows(record, before):
            if record.counted == before.counted:
                return  # that step has not ended
            seen.clear()
            seen.append(record)
        self._interrupted = None
        if seen and not _follows(record, seen[-1]):
            seen.clear()
        if not seen:
            seen.append(_start_of(record))  # so that an agent that has just started knows the rate immediately
        if record.counted == seen[-1].counted and len(seen) > 1:
            seen.pop()
        seen.append(record)
        window = self._window if not cycle else cycle * ceil(self._window / cycle)
        while len(seen) > 2 and _is_enough(seen[1], record, window):
            seen.popleft()

    def steps_at(self, now_ns: int, awake_ns: int = 0) -> RunSteps | None:
        """Return the state of the run; None before the first record. `awake_ns`: when it resumed, if it was parked before."""
        if not self._seen:
            return None
        base, last = self._seen[0], self._seen[-1]
        rate, (mini_batch, spread, measured) = _rate(base, last), _mini_batch(base, last)
        step, total = last.first + last.counted, last.total or None
        return RunSteps(
            self._key,
            step,
            total,
            _state(last, now_ns, awake_ns, mini_batch),
            min(LONGEST, max(0.0, (now_ns - last.last_ns) * 1e-9)),
            rate,
            _error(rate, mini_batch, spread, measured),
            _rate(_start_of(last), last),
            mini_batch,
            spread,
            measured,
            None if total is None else _remaining(max(0, total - step), last, mini_batch),
        )


def _is_enough(base: Record, last: Record, window: float) -> bool:
    """Whether the interval between the two is long enough for the current rate."""
    return last.counted - base.counted >= FEWEST and (last.last_ns - base.last_ns) * 1e-9 >= window


def _start_of(record: Record) -> Record:
    """Return the record of the same process right after its first step."""
    return record._replace(last_ns=record.began_ns, untimed=0, counted=0, busy_ns=0, squares=0.0)


def _follows(later: Record, earlier: Record) -> bool:
    """Whether one process can have published both, in this order."""
    return (later.pid, later.began_ns) == (earlier.pid, earlier.began_ns) and all(
        getattr(later, name) >= getattr(earlier, name) for name in ("last_ns", "counted", "untimed", "busy_ns", "squares")
    )


def _rate(base: Record, last: Record) -> float | None:
    took = (last.last_ns - base.last_ns) * 1e-9
    steps = last.counted - base.counted
    return steps / took if 0 < steps <= took * FASTEST else None


def _mini_batch(base: Record, last: Record) -> tuple[float | None, float | None, int]:
    """Return the mean duration of a step, its standard deviation, and the number of steps."""
    timed = (last.counted - last.untimed) - (base.counted - base.untimed)
    if timed <= 0 or (mean := (last.busy_ns - base.busy_ns) * 1e-9 / timed) < SHORTEST:
        return None, None, 0
    if timed == 1:
        return mean, None, 1
    variance = max(0.0, (last.squares - base.squares) / timed - mean * mean) * timed / (timed - 1)
    return mean, sqrt(variance), timed


def _error(rate: float | None, mini_batch: float | None, spread: float | None, measured: int) -> float | None:
    if rate is None or mini_batch is None or spread is None:
        return None
    return min(FASTEST, rate * spread / mini_batch / sqrt(measured))


def _remaining(steps: int, last: Record, mini_batch: float | None) -> float | None:
    since_start = _rate(_start_of(last), last)
    if since_start is None:
        return 0.0 if not steps else None
    each = 1 / since_start
    usual, _, _ = _mini_batch(_start_of(last), last)
    if mini_batch is not None and usual is not None:
        each *= mini_batch / usual
    found = steps * each
    return found if found <= LONGEST else None


def _state(last: Record, now_ns: int, awake_ns: int, mini_batch: float | None) -> StepState:
    idle = (now_ns - max(last.last_ns, last.changed_ns, awake_ns)) * 1e-9
    if last.state == RUNNING and mini_batch is not None and idle > max(STALLED_AFTER, STALLED_STEPS * mini_batch):
        return StepState.STALLED
    return _STATES[last.state]
