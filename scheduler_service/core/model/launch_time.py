"""How long a launch has executed: time in which it was parked, and other runs' turns, do not count."""

from collections.abc import Iterable

from scheduler_service.core.model.jobs import Job
from scheduler_service.core.model.runs import Run, Turns
from scheduler_service.core.model.values import WHOLE, Micros


def parked_us(run: Run, now: Micros) -> Micros:
    """Return the total time that the run has been parked."""
    parking = run.parking
    if parking is None:
        return 0
    return parking.before_us + (0 if parking.since_us is None else max(now - parking.since_us, 0))


def waited_us(run: Run, now: Micros) -> Micros:
    """Return the total time that the run has waited for its turns since it started."""
    turns = run.turns
    if turns is None or run.started_us is None:
        return 0
    since = max(turns.since_us, run.started_us)
    return turns.waited_us + max(now - since, 0) * (WHOLE - turns.part_ppm) // WHOLE


def with_part(run: Run, part_ppm: int, now: Micros) -> Turns | None:
    """Return the turns of the run from now on, if it may compute for this part of the time."""
    before = run.turns
    if before is None and part_ppm == WHOLE:
        return None
    return before if before is not None and before.part_ppm == part_ppm else Turns(part_ppm, now, waited_us(run, now))


def part_of(run: Run) -> int:
    """Return the part of the time in which the run may compute, in millionths."""
    return WHOLE if run.turns is None else run.turns.part_ppm


def first_of(runs: Iterable[Run]) -> Run | None:
    """Return the task of a launch that started first. It determines the launch's time: tasks park and take turns together."""
    began = [(run.started_us, run) for run in runs if run.started_us is not None]
    return min(began, key=lambda pair: pair[0])[1] if began else None


def execution_time_parts(runs: Iterable[Run]) -> tuple[Micros, Micros | None, int]:
    """Return how long the launch with these tasks has executed, in three parts: a duration; if it executes, the time since when
    it also counts; and the part of that which counts, in millionths. The answer does not depend on when it is asked."""
    first = first_of(run for run in runs if run.ended_us is None)
    if first is None:
        return 0, None, WHOLE
    assert first.started_us is not None  # it is one that started
    if first.parking is not None and first.parking.since_us is not None:
        return executed_us([first], first.parking.since_us), None, WHOLE
    part = part_of(first)
    if part == WHOLE:
        waited = 0 if first.turns is None else first.turns.waited_us
        return 0, first.started_us + parked_us(first, 0) + waited, WHOLE
    assert first.turns is not None  # they have the part
    since = max(first.turns.since_us, first.started_us)
    return executed_us([first], since), since if part else None, part


def executed_us(runs: Iterable[Run], now: Micros) -> Micros:
    """Return how long the launch with these tasks has executed since the first of them started; 0 if none has."""
    first = first_of(runs)
    if first is None:
        return 0
    assert first.started_us is not None  # it is one that started
    return now - first.started_us - parked_us(first, now) - waited_us(first, now)


def limit_at(job: Job, runs: Iterable[Run], now: Micros) -> Micros | None:
    """Return when a launch with these tasks reaches its time limit, if its part of the time does not change; None: it has no
    limit, has not started, or has no turns."""
    first = first_of(runs) if job.time_limit_us else None
    if first is None:
        return None
    left, part = max(job.time_limit_us - job.ran_us - executed_us([first], now), 0), part_of(first)
    if part == WHOLE:
        return now + left
    return now + -(-left * WHOLE // part) if part else None
