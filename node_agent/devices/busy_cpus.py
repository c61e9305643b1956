"""How busy CPUs are, from the kernel's counts in /proc/stat."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

_IDLE = (3, 4)
"""Positions of the times in which a CPU was idle, or waited for a disk."""
_COUNTED = 8
"""Number of times that are summed; the ones that follow are parts of these."""


def kernel_counts() -> bytes:
    return Path("/proc/stat").read_bytes()


class BusyCpus:
    """CPU use between two looks."""

    def __init__(self, counts: Callable[[], bytes] = kernel_counts) -> None:
        self._counts = counts
        self._before = times_of(counts())

    def percent(self, sets: Sequence[Collection[int]]) -> list[int | None]:
        """Return for each set of CPUs the percentage of time since the last look in which they worked; None: not known."""
        before, self._before = self._before, times_of(self._counts())
        return [_percent(before, self._before, cpus) for cpus in sets]


def times_of(text: bytes) -> dict[int, tuple[int, int]]:
    """Return for each CPU how long it has worked, and how long it was online."""
    found = {}
    for line in text.splitlines():
        name, *rest = line.split()
        if name.startswith(b"cpu") and name[3:].isdigit():
            times = [int(each) for each in rest[:_COUNTED]]
            found[int(name[3:])] = sum(times) - sum(times[place] for place in _IDLE), sum(times)
    return found


def _percent(before: Mapping[int, tuple[int, int]], after: Mapping[int, tuple[int, int]], cpus: Collection[int]) -> int | None:
    known = [cpu for cpu in cpus if cpu in before and cpu in after]
    passed = sum(after[cpu][1] - before[cpu][1] for cpu in known)
    if passed <= 0:
        return None
    worked = sum(after[cpu][0] - before[cpu][0] for cpu in known)
    return max(0, min(100, round(100 * worked / passed)))
