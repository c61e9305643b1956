"""The two kinds of device that the demo makes of this machine's CPUs: disjoint CPU sets, one wide and one narrow.

An agent is confined to the CPU set of its device, and so is every job that it starts. A job gets its number of threads from
its environment. If the wide set would have only one CPU, too, the narrow device represents an older processor instead:
OpenBLAS does not use its AVX kernels there.
"""

import os
import platform
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from examples.demo.stage import Failed

WIDEST = 8
"""CPUs of the wide device, at most: small matrices do not profit from more threads."""
_OLD = {"OPENBLAS_CORETYPE": "Prescott"}
"""OpenBLAS takes its kernels for SSE3."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Device:
    """A CPU set, and what is in the environment of the jobs on it."""

    name: str
    cpus: frozenset[int]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        count = len(self.cpus)
        old = ", without AVX kernels" if "OPENBLAS_CORETYPE" in self.environment else ""
        return f"{self.name} is {count} CPU{'s' * (count > 1)} ({', '.join(map(str, sorted(self.cpus)))}){old}"


def devices(cpus: Collection[int], machine: str = platform.machine()) -> tuple[Device, Device]:
    """The wide and the narrow device. Raises Failed where these CPUs do not make two kinds."""
    if len(cpus) < 2:
        raise Failed(f"this show needs 2 CPUs or more for its two devices, and this process may use {len(cpus)}")
    if len(cpus) == 2 and machine != "x86_64":
        raise Failed(
            f"this show needs 3 CPUs or more on {machine}, and this process may use 2: its two devices would be equally fast"
        )
    first, *others = sorted(cpus)
    wide, narrow = frozenset(others[:WIDEST]), frozenset({first})
    old = _OLD if len(wide) == 1 else {}
    return Device("wide", wide, _threads(wide)), Device("narrow", narrow, {**_threads(narrow), **old})


def _threads(cpus: Collection[int]) -> dict[str, str]:
    return {name: str(len(cpus)) for name in _THREADS}


@contextmanager
def confined(cpus: Collection[int]) -> Iterator[None]:
    """Processes that are started meanwhile by this thread may use these CPUs alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
