"""How long a launch has executed: the time in which it was parked does not count."""

from collections.abc import Iterable

from scheduler_service.core.model.runs import Run
from scheduler_service.core.model.values import Micros


def parked_us(run: Run, now: Micros) -> Micros:
    """How long the run has been parked, in all."""
    parking = run.parking
    if parking is None:
        return 0
    return parking.before_us + (0 if parking.since_us is None else max(now - parking.since_us, 0))


def executed_us(runs: Iterable[Run], now: Micros) -> Micros:
    """How long the launch with these tasks has executed, from the start of the first of them; 0 if none has started. They are
    parked together."""
    began = [(run.started_us, run) for run in runs if run.started_us is not None]
    if not began:
        return 0
    first, run = min(began, key=lambda pair: pair[0])
    return now - first - parked_us(run, now)
