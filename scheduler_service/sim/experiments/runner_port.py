"""What a runner of simulations is: given pieces of work, it reports on each; and what all runners share."""

import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

TELL_EVERY = 0.2
"""Seconds between two words of a worker on how far it is."""


class Told(NamedTuple):
    """How far a piece of work is."""

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
"""Hears how many jobs are over, and of how many, where that is known."""
Perform = Callable[[Any, Tell], Any]


class Runner(Protocol):
    """Does pieces of work, several at a time."""

    workers: int
    """How much is done at a time."""

    def submit(self, number: int, work: Any) -> None: ...

    def reports(self) -> Iterator[Report]:
        """Until all that was submitted, also in the meantime, is done or has failed."""


class BadAddress(Exception):
    """`--on` names no place where simulations can run; the message says what it may be."""


def paced(tell: Tell) -> Tell:
    """Passes on what it is told now and then: simulations are fast, and pipes are not free."""
    last = 0.0

    def told(over: int, total: int | None) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= TELL_EVERY:
            last = now
            tell(over, total)

    return told


def failed(number: int, error: BaseException) -> Failed:
    told = str(error) if type(error).__module__.startswith("scheduler_service.") else f"{type(error).__name__}: {error}"
    return Failed(number, told, "".join(traceback.format_exception(error)))
