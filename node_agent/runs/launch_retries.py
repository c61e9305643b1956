"""Launches that fail by a fault of the node, and not of the run: it goes on starting, and is tried again, ever more rarely."""

import asyncio
import logging
from collections.abc import Callable

from node_agent.run_state.model import RunKey

log = logging.getLogger(__name__)

_FIRST = 0.5
_LONGEST = 30.0
"""Seconds between two tries."""
_DOUBLED = 6
"""Times, after which it is the longest: a count of tries goes on for days, and its power is more than a float holds."""


class Retries:
    """`launch` is called when a run's next try is due, and is to say so by `due`. `failed` is called with a run that is tried
    later."""

    def __init__(self, launch: Callable[[RunKey], None], failed: Callable[[RunKey], None] = lambda _: None) -> None:
        self._launch = launch
        self._failed = failed
        self._tries: dict[RunKey, int] = {}
        self.timers: dict[RunKey, asyncio.TimerHandle] = {}
        """The next try of each."""

    def close(self) -> None:
        """Nothing is tried from here on."""
        for timer in self.timers.values():
            timer.cancel()

    def later(self, key: RunKey, why: str) -> None:
        """A launch has failed."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        delay = min(_FIRST * 2 ** min(tries - 1, _DOUBLED), _LONGEST)
        log.error("run %s: NODE FAULT, it cannot be launched here: %s; trying again in %g s", key, why, delay)
        self.due(key)
        self.timers[key] = asyncio.get_running_loop().call_later(delay, self._launch, key)
        self._failed(key)

    def due(self, key: RunKey) -> None:
        """It is tried now."""
        if (timer := self.timers.pop(key, None)) is not None:
            timer.cancel()

    def over(self, key: RunKey) -> None:
        """It was launched, or is not going to be."""
        self.due(key)
        self._tries.pop(key, None)
