"""Watches how much host memory runs use, and which of them exceed their request.

A run's memory is what it would not give back: private and shared memory, but not the files that it has mapped. Memory that
several of its processes share counts once. The exact size costs the kernel a walk through all of it, so it is read only for
runs whose resident sizes, which are cheap to read and never too small, add up to more than is allowed.
"""

import asyncio
import logging
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from functools import partial
from pathlib import Path

from node_agent.processes.blocking_calls import call_in_own_thread
from node_agent.processes.process_groups import processes_inside, read
from node_agent.run_state.model import RunKey

log = logging.getLogger(__name__)

_PAGE = os.sysconf("SC_PAGESIZE")
_EXACT = (b"Pss_Anon:", b"Pss_Shmem:")
_OLDER = b"Pss:"
"""The field of kernels that do not list files separately."""
_SHARE = 0.05
"""Maximum part of one CPU's time that is spent on exact sizes of one run."""

Limits = Mapping[RunKey, tuple[int | str, int]]
"""For each run its process group, or the path of its control group, and the bytes that it may use."""


class MemoryWatch:
    """Looks every `interval` seconds, in a thread: a sick /proc then blocks nothing else."""

    def __init__(self, limits: Callable[[], Limits], exceeded: Callable[[RunKey, int], None], interval: float = 1.0) -> None:
        self._limits = limits
        self._exceeded = exceeded
        self._interval = interval
        self._next_exact: dict[RunKey, float] = {}

    async def run(self) -> None:
        """Report each run that uses more than it may, and how many bytes; repeatedly while it lives. Never returns."""
        while True:
            await asyncio.sleep(self._interval)
            if limits := dict(self._limits()):
                try:
                    found = await call_in_own_thread(partial(self.find_exceeding, limits))
                except (OSError, RuntimeError) as error:
                    log.warning("the memory of runs cannot be looked at: %s; trying again", error)
                    continue
                for key, used in found.items():
                    self._exceeded(key, used)

    def find_exceeding(self, limits: Limits) -> dict[RunKey, int]:
        """Return the runs that use too much, and how much."""
        members = resident({group for group, _ in limits.values()})
        self._next_exact = {key: at for key, at in self._next_exact.items() if key in limits}
        found = {}
        for key, (group, limit) in limits.items():
            sizes = members[group]
            if sum(sizes.values()) > limit and self._next_exact.get(key, 0.0) <= (began := time.monotonic()):
                used = sum(map(exact, sizes))
                ended = time.monotonic()
                self._next_exact[key] = ended + (ended - began) / _SHARE
                if used > limit:
                    found[key] = used
        return found


def resident(groups: Set[int | str]) -> dict[int | str, dict[int, int]]:
    """Return group -> process -> resident bytes, for all processes of these groups."""
    found: dict[int | str, dict[int, int]] = defaultdict(dict)
    for group in groups:
        if isinstance(group, str):
            for pid in processes_inside(group):
                with suppress(OSError):
                    found[group][pid] = _statm(pid)[1] * _PAGE
    if any(isinstance(group, int) for group in groups):
        for name in os.listdir("/proc"):  # noqa: PTH208 (faster than pathlib)
            if name.isdigit():
                with suppress(OSError):
                    leader = os.getpgid(int(name))
                    if leader in groups:
                        found[leader][int(name)] = _statm(int(name))[1] * _PAGE
    return found


def exact(pid: int) -> int:
    """Return the bytes of a process that are not files, each page divided by the number of its sharers."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:  # it has ended, or has changed its user
        with suppress(OSError):
            _, size, shared, *_ = _statm(pid)
            return (size - shared) * _PAGE
        return 0
    sizes = [line for line in lines if line.startswith(_EXACT)] or [line for line in lines if line.startswith(_OLDER)]
    return sum(int(line.split()[1]) for line in sizes) * 1024


class OomKills:
    """The number of processes that this kernel has killed because memory ran out."""

    def __init__(self) -> None:
        self._count = 0
        self._read_at = -math.inf

    def read(self) -> int:
        with suppress(OSError, ValueError, IndexError):
            self._count = int(read("/proc/vmstat").partition(b"\noom_kill ")[2].split(maxsplit=1)[0])
        self._read_at = time.monotonic()
        return self._count

    def read_recent(self) -> int:
        """Return a count at most a second old: reading it takes longer than most steps of a launch."""
        return self._count if time.monotonic() - self._read_at < 1.0 else self.read()


def _statm(pid: int) -> list[int]:
    descriptor = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    try:
        return [int(field) for field in os.read(descriptor, 256).split()]
    finally:
        os.close(descriptor)
