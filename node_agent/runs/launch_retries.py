"""Retries launches that fail because of the node: the run keeps starting, and is retried less and less often."""

import asyncio
import logging
from collections.abc import Callable

from node_agent.run_state.model import RunKey

log = logging.getLogger(__name__)

_FIRST = 0.5
_LONGEST = 30.0
"""Seconds between two tries."""
_DOUBLED = 6
"""Number of doublings until the longest delay: counts grow for days, and their power would overflow a float."""


class Retries:
    """`launch` is called when a run's next try is due, and must confirm by `note_try`. `failed` is called with a run that is to
    be tried later."""

    def __init__(self, launch: Callable[[RunKey], None], failed: Callable[[RunKey], None] = lambda _: None) -> None:
        self._launch = launch
        self._failed = failed
        self._tries: dict[RunKey, int] = {}
        self.timers: dict[RunKey, asyncio.TimerHandle] = {}
        """The next try of each run."""

    def close(self) -> None:
        """Retry nothing from here on."""
        for timer in self.timers.values():
            timer.cancel()

    def retry_later(self, key: RunKey, why: str) -> None:
        """Schedule the next try after a launch has failed."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        delay = min(_FIRST * 2 ** min(tries - 1, _DOUBLED), _LONGEST)
        log.error("run %s: NODE FAULT, it cannot be launched here: %s; trying again in %g s", key, why, delay)
        self.note_try(key)
        self.timers[key] = asyncio.get_running_loop().call_later(delay, self._launch, key)
        self._failed(key)

    def note_try(self, key: RunKey) -> None:
        """Note that the run is being tried now."""
        if (timer := self.timers.pop(key, None)) is not None:
            timer.cancel()

    def forget(self, key: RunKey) -> None:
        """Forget a run that was launched, or is not going to be."""
        self.note_try(key)
        self._tries.pop(key, None)
