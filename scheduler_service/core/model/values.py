"""The units of the core: resource vectors and time.

CPU is counted in thousandths of a core, memory in MiB, devices whole, time in microseconds since the epoch. All are
integers, so that sums return exactly to where they began.
"""

from functools import lru_cache
from typing import NamedTuple

Micros = int
"""A point in time (microseconds since 1970) or a duration (microseconds)."""

SECOND: Micros = 1_000_000

WHOLE = 1_000_000
"""One device. Parts of a device are counted in millionths of it (ppm)."""


class Vector(NamedTuple):
    """Amounts of the three resources that a task occupies or a node offers.

    >>> add(Vector(1000, 512, 1), Vector(500, 512, 0))
    Vector(cpu_milli=1500, memory_mib=1024, devices=1)
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    devices: int = 0


ZERO = Vector()
UNSET = -1
"""Placeholder for CPUs or memory that a user has not specified. No row has it."""

Mask = int
"""A set of device indices: bit i is device i."""


_new = tuple.__new__  # what Vector(...) comes to, without a call in between


def add(a: Vector, b: Vector) -> Vector:
    return _new(Vector, (a[0] + b[0], a[1] + b[1], a[2] + b[2]))


def sub(a: Vector, b: Vector) -> Vector:
    return _new(Vector, (a[0] - b[0], a[1] - b[1], a[2] - b[2]))


def times(a: Vector, count: int) -> Vector:
    return _new(Vector, (a[0] * count, a[1] * count, a[2] * count))


def minimum(a: Vector, b: Vector) -> Vector:
    """Return the component-wise minimum."""
    return _new(Vector, (min(a[0], b[0]), min(a[1], b[1]), min(a[2], b[2])))


def fits(need: Vector, room: Vector) -> bool:
    """Whether `need <= room` in every component."""
    return need[0] <= room[0] and need[1] <= room[1] and need[2] <= room[2]


@lru_cache(maxsize=65536)
def mask_of(indices: tuple[int, ...]) -> Mask:
    """Return the set of these device indices; empty if one of them is negative or occurs twice."""
    mask = 0
    for index in indices:
        if index < 0 or mask >> index & 1:
            return 0
        mask |= 1 << index
    return mask


@lru_cache(maxsize=65536)
def first_of(mask: Mask, count: int) -> tuple[int, ...]:
    """Return the first `count` device indices of the set, or all if it has fewer.

    >>> first_of(0b1101, 2)
    (0, 2)
    """
    indices: list[int] = []
    while mask and len(indices) < count:
        lowest = mask & -mask
        indices.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(indices)
