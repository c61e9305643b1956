"""Host memory for the contents of parked storages. The memory is kept between parks, because page-locking it takes long."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any, NamedTuple

from .control import Refused

_ALIGNMENT = 512
_POPULATE = getattr(mmap, "MAP_POPULATE", 0x8000)
"""Makes the kernel provide all pages immediately. Python has known the name since 3.10."""
_PORTABLE = 1
"""cudaHostRegisterPortable."""
_RESERVE = 256 << 20
"""Bytes of host memory that a park leaves available."""


class Place(NamedTuple):
    chunk: Any
    """A tensor of bytes."""
    begin: int
    end: int

    @property
    def bytes(self) -> Any:
        return self.chunk[self.begin : self.end]


class Arena:
    """Anonymous shared mappings. The kernel counts them as shared memory, separate from the memory of the program's tensors.

    The arena grows by one mapping when a park needs more than ever before, and never shrinks.
    """

    def __init__(self, torch: Any, pinned: bool) -> None:
        """With `pinned` the memory is page-locked for CUDA, so that copies run at the speed of the bus."""
        self._torch = torch
        self.pinned = pinned
        self._chunks: list[Any] = []

    @property
    def size(self) -> int:
        return sum(len(chunk) for chunk in self._chunks)

    @property
    def addresses(self) -> frozenset[int]:
        """Addresses of the mappings."""
        return frozenset(chunk.data_ptr() for chunk in self._chunks)

    def places(self, sizes: list[int]) -> list[Place]:
        """Return a place for each size. Raises Refused if there is not enough host memory."""
        found: list[Place] = []
        chunks = iter(self._chunks)
        chunk, at = next(chunks, None), 0
        for number, size in enumerate(sizes):
            while chunk is None or at + size > len(chunk):
                if chunk is None:
                    chunk = self._grow(sum(map(_round_up, sizes[number:])))
                else:
                    chunk, at = next(chunks, None), 0
            found.append(Place(chunk, at, at + size))
            at += _round_up(size)
        return found

    def _grow(self, size: int) -> Any:
        if (available := _available()) < size + _RESERVE:
            raise Refused(f"host memory: {size >> 20} MiB more are needed, and {available >> 20} MiB are available")
        try:
            memory = mmap.mmap(-1, size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _POPULATE)
        except OSError as error:
            raise Refused(f"host memory: {size >> 20} MiB cannot be mapped: {error}") from error
        chunk = self._torch.frombuffer(memory, dtype=self._torch.uint8)
        if self.pinned:
            self.pinned = self._lock(chunk)
        self._chunks.append(chunk)
        return chunk

    def _lock(self, chunk: Any) -> bool:
        """Page-lock the memory for all devices. Return whether that was possible; if not, copies are slower."""
        with suppress(Exception):
            return int(self._torch.cuda.cudart().cudaHostRegister(chunk.data_ptr(), len(chunk), _PORTABLE)) == 0
        return False


def _round_up(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _available() -> int:
    """Return the bytes of host memory that are available without swapping."""
    with open("/proc/meminfo") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 1 << 62
