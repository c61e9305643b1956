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


def executed(runs: Iterable[Run]) -> tuple[Micros, Micros | None]:
    """How long the launch with these tasks has executed, in two parts: so long, and since then if it executes. Its time is the
    same whoever asks and whenever, so that answers are."""
    began = [run for run in runs if run.started_us is not None and run.ended_us is None]
    if not began:
        return 0, None
    first = min(began, key=lambda run: run.started_us or 0)
    since = None if first.parking is None else first.parking.since_us
    if since is not None:
        return executed_us([first], since), None
    assert first.started_us is not None
    return 0, first.started_us + parked_us(first, 0)


def executed_us(runs: Iterable[Run], now: Micros) -> Micros:
    """How long the launch with these tasks has executed, from the start of the first of them; 0 if none has started. They are
    parked together."""
    began = [(run.started_us, run) for run in runs if run.started_us is not None]
    if not began:
        return 0
    first, run = min(began, key=lambda pair: pair[0])
    return now - first - parked_us(run, now)
