"""SIGTERM, for every Checkpointer of a process: it is heard once, by all that are there, or by the next one to come."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | int | None

_listening: list[Callable[[], None]] = []
_asked = False
"""Whether this process was asked to stop and is still running."""
_before: Handler = signal.SIG_DFL
"""The signal's handler before the first listener."""


def listen(stop: Callable[[], None]) -> None:
    """Call `stop` when the signal arrives, or now, if it arrived between the previous listener and this one.

    Raises ValueError outside of the main thread, where Python knows no signals.
    """
    global _before  # a process has one handler of a signal
    if (found := signal.signal(signal.SIGTERM, _handle_signal)) is not _handle_signal:
        _before = found
    _listening.append(stop)
    if _asked:
        stop()


def leave(stop: Callable[[], None], deaf: bool) -> bool:
    """Calls it no more; whether it was the last. Then nobody acts on the signal if `deaf`: what is done stays done, and a clean
    exit does not become a death by signal. Otherwise the signal means what it did before."""
    if stop in _listening:
        _listening.remove(stop)
    if not (_listening or deaf):
        _restore()
    return not _listening


def _handle_signal(_number: int, _frame: FrameType | None) -> None:
    global _asked
    _asked = True
    for stop in _listening:
        stop()


def _restore() -> None:
    global _asked
    _asked = False
    if _before is not None:  # None: not set by Python, nor for it to set again
        signal.signal(signal.SIGTERM, _before)


# A fork, such as a worker that loads data, saves nothing: its parent ends it, by this very signal as a rule. The signal is kept
# until the fork has what it meant before, for what comes to Python in the moment of its birth is lost.
_kept = threading.local()


def _before_fork() -> None:
    _kept.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if _is_ours() else None


def _after_fork() -> None:
    if _kept.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _kept.mask)


def _after_fork_in_child() -> None:
    _listening.clear()
    if _is_ours():
        _restore()
    _after_fork()


def _is_ours() -> bool:
    return signal.getsignal(signal.SIGTERM) is _handle_signal


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
