"""The progress of a launch in whole numbers, so that its end does not depend on how often its rate changed."""

from dataclasses import dataclass

from scheduler_service.core.model.values import Micros
from scheduler_service.sim.sharing.model import BILLION


@dataclass(slots=True)
class Pace:
    """Work is measured by the microseconds that it takes at the rate 1, and by billionths of them if that matters."""

    target_us: Micros
    """The work to do."""
    since_us: Micros
    """The time from which it works at this rate."""
    rate: int = 0
    """The rate in billionths."""
    share: int = 0
    """The part of the time in which it executes, in billionths; its rate is that during execution times this."""
    mark_us: Micros = 0
    """Work after which the time is recorded; 0: no time is recorded."""
    marked_us: Micros | None = None
    """When that work was done."""
    _finished_us: Micros | None = None
    _done: int = 0
    _executed: int = 0

    def done_us(self, at: Micros) -> Micros:
        """The work done by then, up to the work that there was to do."""
        return min((self._done + self.rate * max(at - self.since_us, 0)) // BILLION, self.target_us)

    def executed_us(self, at: Micros) -> Micros:
        """The time for which it has executed by then."""
        return (self._executed + self.share * max(at - self.since_us, 0)) // BILLION

    def change(self, at: Micros, rate: int, share: int, since_us: Micros | None = None) -> None:
        """Change the rate from `since_us` on, which is now or later; it does not work until then."""
        lasted = at - self.since_us
        if lasted > 0:
            done = self._done + self.rate * lasted
            if self.marked_us is None and self.mark_us and done >= self.mark_us * BILLION:
                self.marked_us = self._reaches(self.mark_us)
            if self._finished_us is None and done >= self.target_us * BILLION:
                self._finished_us = self._reaches(self.target_us)
            self._done = done
            self._executed += self.share * lasted
        self.rate, self.share = rate, share
        self.since_us = max(at, self.since_us) if since_us is None else since_us

    def ends_us(self) -> Micros | None:
        """When all work is done if the rate does not change; None: never."""
        if self._finished_us is not None:
            return self._finished_us
        return self._reaches(self.target_us) if self.rate or self._done >= self.target_us * BILLION else None

    def _reaches(self, work_us: Micros) -> Micros:
        left = work_us * BILLION - self._done
        return self.since_us - -left // self.rate if left > 0 else self.since_us
