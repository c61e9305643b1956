"""The program's signal handlers, deferred while its tensors are in host memory.

A handler is code of the program, and may save the tensors, which have no contents while the program is parked.
"""

from __future__ import annotations

import signal
from typing import Any


def put_off(noted: list[int]) -> dict[int, Any]:
    """Replace each handler that is a Python function by one that notes the signal. Return the handlers.

    Only the main thread may call this.
    """

    def note(number: int, _frame: object) -> None:
        if number not in noted:
            noted.append(number)

    theirs = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, signal.Handlers):
            theirs[int(number)] = handler
            signal.signal(number, note)
    return theirs


def put_back(theirs: dict[int, Any]) -> None:
    """Restore the handlers. The caller then raises the noted signals by `signal.raise_signal`."""
    for number, handler in theirs.items():
        signal.signal(number, handler)
