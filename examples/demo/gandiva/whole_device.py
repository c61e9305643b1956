"""A device that executes one job's kernels at a time, as a GPU does with kernels that fill it.

A CPU does the same with processes that compute. But on a busy machine, two such processes get more of a CPU than one, so that
two jobs together would seem to be faster than one. Therefore jobs that fill their device hand on a token, and only the process
that has it computes. A process keeps it for much longer than an operating system favours a process that has waited.
"""

import os
import time
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from select import select
from struct import unpack
from termios import FIONREAD

KEPT = 0.15
"""Seconds after which a process hands it on."""
PATIENCE = 2.0
"""Seconds without the token after which its holder is taken to be parked, or gone."""
_HAND_ON = 0.004
"""Seconds in which a process that waits may take it."""


class Token:
    """The token of the device that this process runs on: a byte in a FIFO."""

    def __init__(self, folder: Path) -> None:
        path = folder / f"cpu-{min(os.sched_getaffinity(0))}"
        made = False
        with suppress(FileExistsError):
            os.mkfifo(path)
            made = True
        self._fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._since: float | None = None
        """When this process took it."""
        if made:
            self.give()

    def have(self) -> None:
        """Returns when this process has the token."""
        if self._since is not None:
            if time.monotonic() - self._since < KEPT:
                return
            self.give()
            time.sleep(_HAND_ON)
        limit = time.monotonic() + PATIENCE
        while (left := limit - time.monotonic()) > 0 and select([self._fifo], [], [], left)[0]:
            with suppress(BlockingIOError):  # another process was faster
                os.read(self._fifo, 1)
                break
        self._since = time.monotonic()

    def give(self) -> None:
        """Put the token back, unless another process did so while its holder was parked: there is only one."""
        self._since = None
        (there,) = unpack("i", ioctl(self._fifo, FIONREAD, b"\0" * 4))
        if not there:
            os.write(self._fifo, b".")
