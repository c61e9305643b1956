"""Ctrl-C, and how the demo takes it: at the next pause.

A signal only leaves a note. The demo reads it wherever it waits, and there it raises `Stopped`. So nothing is torn apart
half-way (a process that was started and not yet noted down), and a second Ctrl-C cannot break the clean-up of the first.
"""

import errno
import signal
import time
from types import FrameType

_SLICE = 0.05  # seconds: how soon a pause notices


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def nobody_reads(error: OSError) -> bool:
    """Whether the error is due to the reader of the output, or the terminal, having gone."""
    return error.errno in (errno.EPIPE, errno.EIO)


class Stopped(Exception):
    """A signal asked the program to end: `number` is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Stopping:
    """Listens to the signals that ask for the end, from its making on."""

    def __init__(self) -> None:
        self._asked = 0
        self._listened_to = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # nohup stays
        for number in self._listened_to:
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._asked = self._asked or number

    def pause(self, seconds: float = _SLICE) -> None:
        """Sleeps, or raises Stopped as soon as a signal has come."""
        end = time.monotonic() + seconds
        while True:
            if self._asked:
                raise Stopped(self._asked)
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _SLICE))

    def over(self) -> None:
        """Whatever comes now comes too late. Raises Stopped for what came in time and was not noticed by a pause."""
        for number in self._listened_to:
            signal.signal(number, signal.SIG_IGN)
        self.pause(0)
