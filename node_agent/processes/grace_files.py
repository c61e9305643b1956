"""Reads the files in which runs ask for a grace period. A job may write anything there, or replace the file."""

import os
import stat
from dataclasses import dataclass
from math import isfinite

from node_agent.run_state.model import RunKey

LONGEST = 86400.0
"""Longest grace period of a job, in seconds."""
_MOST_BYTES = 64
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class RunGrace:
    key: RunKey
    seconds: float


def read_grace(path: str, key: RunKey) -> RunGrace | None:
    """Return the grace period that the run asks for; None if it asks for none, or for an invalid one. Raises nothing."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        seconds = float(os.pread(descriptor, _MOST_BYTES, 0))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    # Less than a microsecond is 0 in a message.
    return RunGrace(key, min(seconds, LONGEST)) if isfinite(seconds) and seconds >= 1e-6 else None
