"""The rise and fall of a process's use of device memory, once for each mini-batch (Gandiva, section 3.2): its period."""

from typing import NamedTuple


class Cycle(NamedTuple):
    """What a wave was found to be. Without a period there is none to be seen; confidence is then 0."""

    period_seconds: float | None
    minimum_mib: int
    maximum_mib: int
    confidence: float
    """From 0 to 1: how well one period resembles the next."""


class Wave:
    """The last samples of one number over time. Pure: the times are the caller's."""

    def __init__(self, window_seconds: float = 60.0) -> None:
        raise NotImplementedError

    def add(self, seconds: float, used_mib: int) -> None:
        """A sample. Times only rise; gaps are allowed."""
        raise NotImplementedError

    def cycle(self) -> Cycle | None:
        """What the samples show; None while there are too few of them."""
        raise NotImplementedError
