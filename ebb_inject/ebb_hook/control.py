"""The control file of a training process: the agent asks there that the process park or resume, and reads its answer.

Each process that can park has a file of its own in EBB_PARK_DIR, and next to it a FIFO whose name has `.wake` appended.
The process creates both and holds an exclusive `flock` on the file while it lives. It maps the file into memory, so a step
notices a request without a system call.

| bytes | content |
|---|---|
| 0 to 7 | MAGIC: the format and its version |
| 64 to 103 | the request: number, command, `at_step`, `most_bytes` and a check, each a word of 8 bytes |
| 512 to 535 | the head of the answer: a sequence, a length and a check, each a word of 8 bytes |
| 536 to 4095 | the answer: a JSON object |

Words have the byte order of the machine.

**Requests.** `send` writes a request with the next number, and then a byte into the FIFO, which wakes a parked process. A
process answers each number once; of two requests that it finds at the same time it answers the later one. The agent may repeat
a request at any time, because a request states the desired result: parked, running, prepared, saved, or gone.

**Answers.** The sequence is odd while the answer is being written. The check is a CRC-32 over the sequence and the JSON text.
So a reader never accepts a mixture of two answers.

| field | content |
|---|---|
| request | the number of the request |
| state | RUNNING, PARKED, REFUSED, PREPARED or SAVED |
| reason | why the request was refused; of a parked process: why the process could not resume or save, and is still parked |
| pid, step | the process, as it sees itself, and the step after which it parked |
| bytes, storages | what was moved to host memory |
| residue | bytes of torch's storages that are still on the devices |
| left | bytes that were not moved, by reason |
| pinned | whether the host memory is page-locked |
| saves | whether the parked process can save its checkpoint |
| seconds | the duration of each phase, by its name |
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import struct
from binascii import crc32
from contextlib import suppress
from mmap import mmap
from time import monotonic_ns
from typing import Any, NamedTuple

MAGIC = b"EBBPARK1"
SIZE = 4096
"""Bytes of the file."""
RESUME, PARK, PREPARE, SAVE, LEAVE, PARK_TOGETHER = 1, 2, 3, 4, 5, 6
"""Commands. `PARK_TOGETHER` parks a rank of a gang on several nodes after a step on which the ranks agree
(`gang_park_agreement`); older hooks refuse it. `PREPARE` prepares the host memory for a park, and moves nothing. `SAVE` makes
a parked process save its checkpoint from host memory; it stays parked. `LEAVE` ends a process that has saved so."""
RUNNING, PARKED, REFUSED, PREPARED, SAVED = "running", "parked", "refused", "prepared", "saved"
"""States of an answer. A process that has refused is running. One that has saved is parked."""
WAKE = ".wake"

_REQUEST = struct.Struct("@QQqq")
_WORD = struct.Struct("@Q")
_REQUEST_AT, _CHECK_AT = 64, 64 + _REQUEST.size
_HEAD = struct.Struct("@QQQ")
_HEAD_AT, _TEXT_AT = 512, 536
_LOW = 0xFFFFFFFF


class Refused(Exception):
    """The program is not parked or not resumed. Nothing was moved. The message is the reason, as shown to users."""


class Request(NamedTuple):
    number: int
    command: int
    at_step: int = 0
    """For PARK: the first step after which the process parks. All ranks of a gang are given the same one. For PARK_TOGETHER:
    the number of the park, which is the same on all nodes, and another one for each park."""
    most_bytes: int = 0
    """The process refuses to move more than this to host memory; 0: no limit."""


class Control:
    """The control file of this process."""

    def __init__(self, folder: str) -> None:
        """Create the file and the FIFO, and lock the file. Raises OSError."""
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 (pathlib is not imported into training processes)
        name = f"{os.getpid()}-{monotonic_ns()}"
        self.path = os.path.join(folder, name)  # noqa: PTH118
        unfinished = os.path.join(folder, f".{name}")  # noqa: PTH118
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.mkfifo(self.path + WAKE, 0o600)
            # With a descriptor that can write, the FIFO never reports an end of file.
            self._wake = os.open(self.path + WAKE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            # Every byte is written: a store into a page for which the disk has no room would kill the process.
            if os.pwrite(descriptor, MAGIC.ljust(SIZE, b"\0"), 0) < SIZE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            self._memory = mmap(descriptor, SIZE)  # mmap duplicates the descriptor, which keeps the lock
            os.rename(unfinished, self.path)  # noqa: PTH104
        except BaseException:
            for path in (unfinished, self.path + WAKE):
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108
            raise
        finally:
            os.close(descriptor)
        self._bytes = memoryview(self._memory)
        self.word = self._bytes[_REQUEST_AT : _REQUEST_AT + _WORD.size].cast("Q")
        """One element: the number of the last request."""
        self._sequence = 0

    def request(self) -> Request | None:
        """Return the last request; None if nothing has been requested, or while a request is being written."""
        data = bytes(self._bytes[_REQUEST_AT : _CHECK_AT + _WORD.size])
        request, (check,) = data[: _REQUEST.size], _WORD.unpack_from(data, _REQUEST.size)
        found = Request(*_REQUEST.unpack(request))
        return found if found.number and check == crc32(request) else None

    def answer(self, answer: dict[str, Any]) -> None:
        """Publish the answer."""
        text = json.dumps(answer).encode()
        if len(text) > SIZE - _TEXT_AT:
            text = json.dumps({**answer, "reason": str(answer.get("reason", ""))[:500], "left": {}}).encode()
        self._sequence += 2
        check = crc32(text, self._sequence & _LOW)
        _WORD.pack_into(self._bytes, _HEAD_AT, self._sequence - 1)
        self._bytes[_TEXT_AT : _TEXT_AT + len(text)] = text
        _HEAD.pack_into(self._bytes, _HEAD_AT, self._sequence, len(text), check)

    def wait(self, seconds: float) -> None:
        """Sleep until a request arrives, or for at most this many seconds. One thread at a time may call this."""
        self.look_out(seconds)
        self.drain()

    def look_out(self, seconds: float) -> None:
        """Like `wait`, but leave the wakeup for another thread."""
        select.select([self._wake], [], [], seconds)

    def drain(self) -> None:
        """Discard pending wakeups."""
        with suppress(BlockingIOError):
            while os.read(self._wake, 512):
                pass

    def wake(self) -> None:
        """Wake a thread of this process that waits."""
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    def close(self) -> None:
        """Drop the mapping and so the lock. A forked child drops those of its parent."""
        self.word.release()
        self._bytes.release()
        self._memory.close()
        os.close(self._wake)

    def remove(self) -> None:
        """Remove the files."""
        for path in (self.path, self.path + WAKE):
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108


# ---- the agent's side -----------------------------------------------------------------------------------------------------


def live(folder: str) -> list[str]:
    """Return the control files of live processes. Removes those of processes that have ended. Raises OSError."""
    if os.path.islink(folder):  # noqa: PTH114 (of a job, which would have files elsewhere removed)
        return []
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118
        if name.startswith(".") or name.endswith(WAKE):
            continue
        if _is_held(path):
            found.append(path)
        else:
            for ended in (path, path + WAKE):
                with suppress(OSError):
                    os.unlink(ended)  # noqa: PTH108
    return found


def _is_held(path: str) -> bool:
    """Whether a process holds the lock. A file that cannot be read is left alone, and counts as not held."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def send(path: str, command: int, at_step: int = 0, most_bytes: int = 0) -> int:
    """Send a request to the process with this control file. Return the number of the request. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        data = os.pread(descriptor, SIZE, 0)
        if len(data) < SIZE or not data.startswith(MAGIC):
            raise OSError(errno.EINVAL, "not a control file", path)
        number = _WORD.unpack_from(data, _REQUEST_AT)[0] + 1
        request = _REQUEST.pack(number, command, at_step, most_bytes)
        os.pwrite(descriptor, request + _WORD.pack(crc32(request)), _REQUEST_AT)
    finally:
        os.close(descriptor)
    wake = os.open(path + WAKE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        with suppress(BlockingIOError):  # a full FIFO wakes the process, too
            os.write(wake, b"\0")
    finally:
        os.close(wake)
    return int(number)


def answer(path: str) -> dict[str, Any] | None:
    """Return the last answer; None if none was written, or while one is being written. Raises OSError; accepts any content."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        data = os.pread(descriptor, SIZE, 0)
    finally:
        os.close(descriptor)
    if len(data) < SIZE or not data.startswith(MAGIC):
        return None
    sequence, length, check = _HEAD.unpack_from(data, _HEAD_AT)
    text = data[_TEXT_AT : _TEXT_AT + length]
    if not sequence or sequence % 2 or length > SIZE - _TEXT_AT or check != crc32(text, sequence & _LOW):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
