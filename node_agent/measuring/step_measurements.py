"""The steps, the time and the memory of a run since its process began. The scheduler estimates from them."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt

from ebb_inject.ebb_hook.step_file import Record
from node_agent.processes.process_groups import read
from node_agent.run_state.model import RunKey

MOST_PROCESSES = 256
"""Processes of a run whose memory is read."""
_TICKS = os.sysconf("SC_CLK_TCK")
_LARGEST_SPREAD = 1000.0
_LONGEST = 10 * 366 * 86400.0


@dataclass(frozen=True, slots=True)
class RunMeasurement:
    """Times are in seconds since the process of the run began."""

    key: RunKey
    steps: int
    """Steps that the process has done, the first one included."""
    total: int
    """Steps of the whole job; 0: the program has not given it."""
    first: float
    """When its first step ended."""
    last: float
    """When its last step ended."""
    spread: float = 0.0
    """The standard error of the step time, relative to it."""
    memory_mib: int = 0
    """The peak host memory of its present processes, added up; 0: unknown."""


def measurement(key: RunKey, record: Record, start_ticks: int, memory_mib: int) -> RunMeasurement | None:
    """Return the measurement from the record of a run; `start_ticks` is the start time of its process from /proc. None if the
    two do not match."""
    began = started_ns(start_ticks)
    first, last = (record.began_ns - began) * 1e-9, (record.last_ns - began) * 1e-9
    if not (start_ticks and 0 <= first <= last <= _LONGEST):
        return None
    return RunMeasurement(key, record.counted + 1, record.total, first, last, _spread(record), memory_mib)


def started_ns(start_ticks: int) -> int:
    """Return the start time on the monotonic clock. /proc also counts the time in which the machine slept."""
    slept = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return start_ticks * (1_000_000_000 // _TICKS) - slept


def _spread(record: Record) -> float:
    timed = record.counted - record.untimed
    if timed < 2 or record.busy_ns <= 0:
        return 0.0
    mean = record.busy_ns * 1e-9 / timed
    variance = max(record.squares / timed - mean * mean, 0.0)
    return min(sqrt(variance / timed) / mean, _LARGEST_SPREAD)


def memory_peak(leader: int) -> int:
    """Return the peak memory of each process of the run so far, added up, in MiB; 0: unknown. The kernel keeps count. Finds
    only processes that main threads have started: asking each thread for its children would take too long."""
    waiting, seen, kib = [leader], {leader}, 0
    while waiting and len(seen) < MOST_PROCESSES:
        pid = waiting.pop()
        with suppress(OSError, ValueError):
            _, _, peak = read(f"/proc/{pid}/status").partition(b"\nVmHWM:")
            kib += int(peak.partition(b"kB")[0])  # a ValueError if it is gone
            children = {int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()}
            waiting += children - seen
            seen |= children
    return kib >> 10
