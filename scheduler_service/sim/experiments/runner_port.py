"""The interface of a runner of simulations, which does pieces of work and reports on each; and shared helpers."""

import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

TELL_EVERY = 0.2
"""Seconds between two progress reports of a worker."""


class Told(NamedTuple):
    """The progress of a piece of work."""

    number: int
    over: int
    total: int | None


class Done(NamedTuple):
    number: int
    value: Any


class Failed(NamedTuple):
    number: int
    error: str
    trace: str = ""


Report = Told | Done | Failed
Tell = Callable[[int, int | None], None]
"""Called with the number of jobs that have ended, and the total if it is known."""
Perform = Callable[[Any, Tell], Any]


class Runner(Protocol):
    """Does several pieces of work at a time."""

    workers: int
    """How many pieces of work are done at a time."""

    def submit(self, number: int, work: Any) -> None: ...

    def reports(self) -> Iterator[Report]:
        """Yield reports until all work that was submitted, even meanwhile, is done or has failed."""


class BadAddress(Exception):
    """`--on` names no place where simulations can run; the message says what is allowed."""


def limit_rate(tell: Tell) -> Tell:
    """Limit the rate of progress reports: simulations are fast, and pipes are not free."""
    last = 0.0

    def tell_rarely(over: int, total: int | None) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= TELL_EVERY:
            last = now
            tell(over, total)

    return tell_rarely


def failed_report(number: int, error: BaseException) -> Failed:
    told = str(error) if type(error).__module__.startswith("scheduler_service.") else f"{type(error).__name__}: {error}"
    return Failed(number, told, "".join(traceback.format_exception(error)))
