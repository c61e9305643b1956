"""Reads the step files of runs (`ebb_inject.ebb_hook.step_file`). A job may write anything there, or replace the file."""

import os
import stat
from math import isfinite

from ebb_inject.ebb_hook.step_file import EVALUATING, RUNNING, SAVING, SIZE, Record, read

MOST = 10**15
"""Maximum steps: more than any job does, and far below what a message can hold."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_COPIES = 8
"""Times that a file is copied until a record is whole. One copy is almost always enough."""
_CLOCKS = 1_000_000_000
"""Nanoseconds by which a step may be later than `now_ns`, because the clock is read before the file."""
_ROUNDED = 1 + 1e-6


def read_record(path: str, now_ns: int) -> Record | None:
    """Return the record that the program published last; None if it is missing or implausible. Raises nothing.

    The file is copied and not mapped: an agent that maps a file is killed if the program truncates that.
    """
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        for _ in range(_COPIES):
            data = os.pread(descriptor, SIZE, 0)
            if len(data) < SIZE:
                return None
            if (record := read(data)) is not None:
                return record if is_plausible(record, now_ns) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def is_plausible(record: Record, now_ns: int) -> bool:
    """Whether a program that counts its steps can have published this by now."""
    lived = record.last_ns - record.began_ns
    return (
        record.state in (RUNNING, EVALUATING, SAVING)
        and 0 <= record.rank <= MOST
        and 0 <= record.total <= MOST
        and 0 <= record.untimed <= record.counted <= MOST
        and 0 <= record.first + record.counted <= MOST
        and 0 < record.began_ns <= record.last_ns <= now_ns + _CLOCKS
        and record.began_ns <= record.changed_ns <= now_ns + _CLOCKS
        and 0 <= record.busy_ns <= lived
        and isfinite(record.squares)
        and 0 <= record.squares <= (record.busy_ns * 1e-9) ** 2 * _ROUNDED + 1e-12
    )
