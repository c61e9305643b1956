"""The step file of a task: the program publishes its step count there, and the agent of the node reads it.

The program maps the file into memory, so that publishing a step takes no system call. All fields are words of 8 bytes in the
byte order of the machine, because both sides run on one node:

| bytes | content |
|---|---|
| 0 to 7 | MAGIC: the format and its version |
| 64 to 175 | a buffer: sequence, check, and the twelve words of a `Record` |
| 192 to 303 | a second buffer |

**Writing.** Records have the sequences 2, 4, 6, ..., and use the two buffers in turn. A record is written in this order:
its sequence minus one, which is odd and marks the buffer as being written; the record; the check; the sequence. A program
that is killed in the middle leaves the previous record intact in the other buffer.

**Reading.** A buffer is whole if its sequence is even and its check is that of its record and its sequence. Of two whole
buffers the one with the higher sequence is the newest. If neither is whole, both changed while they were copied, and the reader
copies the file again.

**What is guaranteed.** A sequence and a check are stored by one assignment to an aligned element of a memoryview. CPython
implements this as a memcpy of 8 bytes, which compilers for 64-bit processors turn into one store; neither CPython nor C
guarantees one. Python has no memory barriers. On x86-64, stores become visible in program order, and the sequences alone
would be enough. On processors that reorder stores, such as ARM's, a reader may see an even sequence before the record that
belongs to it. So readers do not rely on the sequence: the check, a CRC-32 that starts from the sequence, must match. A
mixture of two records passes the check with a probability of 2^-32, on every processor.
"""

from __future__ import annotations

import struct
from binascii import crc32
from mmap import mmap
from typing import NamedTuple

MAGIC = b"EBBSTEP1"
SIZE = 320
"""Bytes of the file."""
RUNNING, EVALUATING, SAVING = 1, 2, 3
"""States of the program."""

_BUFFERS = (64, 192)
_HEAD = struct.Struct("@QQ")
_RECORD = struct.Struct("@11qd")
_COUNTS = struct.Struct("@3qd")
_BEFORE_COUNTS = _RECORD.size - _COUNTS.size
_LOW = 0xFFFFFFFF
_LAST_SEQUENCE = 1 << 62


class Record(NamedTuple):
    """A process's published record. Times are nanoseconds of the machine's monotonic clock.

    The sums only grow while the process lives. So any two records of a process give the rate between them, and the mean
    duration of a step with its spread, regardless of the number of steps in between.
    """

    pid: int
    """The pid as the process sees it; in a container the agent may see another one."""
    rank: int
    state: int
    began_ns: int
    """When the first step of the process ended."""
    changed_ns: int
    """When the state changed last."""
    first: int
    """The number of that first step, counted over all runs of the job if the program knows how many steps earlier runs did."""
    total: int
    """Steps of the whole job; 0: unknown."""
    untimed: int
    """Steps since then that are not in the two sums, because it is not known when they began."""
    last_ns: int
    """When the last step ended."""
    counted: int
    """Steps since `began_ns`."""
    busy_ns: int
    """The sum of their durations."""
    squares: float
    """The sum of the squares of their durations, in square seconds."""


class Writer:
    """Writes records into a step file. A file must have only one writer at a time: two would write into the same buffers."""

    def __init__(self, memory: mmap | bytearray) -> None:
        """`memory` is the file. Records of an earlier process stay until they are replaced."""
        self._bytes = memoryview(memory)
        self._words = self._bytes.cast("Q")
        self._buffers = tuple(
            (at // 8, at // 8 + 1, at + _HEAD.size, self._bytes[at + _HEAD.size : at + _HEAD.size + _RECORD.size])
            for at in _BUFFERS
        )
        newest = max(self._words[buffer // 8] for buffer in _BUFFERS)
        if newest > _LAST_SEQUENCE:  # not written by a Writer
            newest = 0
            for buffer in _BUFFERS:
                self._words[buffer // 8] = 0
        self._sequence = newest - newest % 2

    def write(self, record: Record) -> None:
        """Writes a record into both buffers. Raises ValueError after `close`, and struct.error for numbers beyond 8 bytes."""
        for _ in _BUFFERS:
            self._sequence = sequence = self._sequence + 2
            word, check, begin, covered = self._buffers[sequence >> 1 & 1]
            self._words[word] = sequence - 1
            _RECORD.pack_into(self._bytes, begin, *record)
            self._words[check] = crc32(covered, sequence & _LOW)
            self._words[word] = sequence

    def count(self, last_ns: int, counted: int, busy_ns: int, squares: float) -> None:
        """Writes the last record again with new counts, in a third of the time of `write`."""
        self._sequence = sequence = self._sequence + 2
        word, check, begin, covered = self._buffers[sequence >> 1 & 1]
        words = self._words
        words[word] = sequence - 1
        _COUNTS.pack_into(self._bytes, begin + _BEFORE_COUNTS, last_ns, counted, busy_ns, squares)
        words[check] = crc32(covered, sequence & _LOW)
        words[word] = sequence

    def close(self) -> None:
        """Releases the memory, so that the mapping can be closed."""
        for *_, covered in self._buffers:
            covered.release()
        self._words.release()
        self._bytes.release()


def read(data: bytes) -> Record | None:
    """Return the newest whole record of a file with this content, or None. Accepts any bytes and raises nothing.

    A whole record is one that was written. The caller checks whether its numbers are plausible.
    """
    if len(data) < SIZE or not data.startswith(MAGIC):
        return None
    newest, found = 0, None
    for buffer in _BUFFERS:
        sequence, check = _HEAD.unpack_from(data, buffer)
        begin = buffer + _HEAD.size
        if sequence > newest and sequence % 2 == 0 and crc32(data[begin : begin + _RECORD.size], sequence & _LOW) == check:
            newest, found = sequence, Record(*_RECORD.unpack_from(data, begin))
    return found


def empty() -> bytes:
    """The content of a file without a record."""
    return MAGIC.ljust(SIZE, b"\0")
