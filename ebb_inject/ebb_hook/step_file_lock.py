"""The step file of a task, claimed by one process of the task at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from mmap import mmap

from . import step_file

_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Claim:
    """The file, mapped and locked. The kernel releases the lock when the process ends, however it ends."""

    def __init__(self, memory: mmap) -> None:
        self._memory = memory
        self.writer = step_file.Writer(memory)

    def close(self) -> None:
        """Release the file for the next process. In a forked child: drop the mapping that belongs to the parent."""
        self.writer.close()
        self._memory.close()


def claim(path: str) -> Claim | None:
    """Open the file, and create it if it is missing; return None while another process holds it. Raises OSError."""
    descriptor = os.open(path, _OPEN, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        found = os.pread(descriptor, step_file.SIZE, 0)
        is_new = len(found) < step_file.SIZE or not found.startswith(step_file.MAGIC)
        # Every byte is written: a store into a page for which the disk has no room would kill the process.
        if is_new and os.pwrite(descriptor, step_file.empty(), 0) < step_file.SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return Claim(mmap(descriptor, step_file.SIZE))  # mmap duplicates the descriptor, which keeps the lock
    finally:
        os.close(descriptor)
