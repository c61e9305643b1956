"""allox-priced: the shortest job first, on the slot where it completes first at the slots' prices; no user gets far ahead.

The matching of `allox` is optimal if no job arrives any more. This order allows for jobs that will arrive, and answers the same
question (`Question`) without a matching:

* **Prices.** The jobs are placed one after the other where they complete first, and those that get a free slot start. While a
  job runs, the slot delays the jobs that wait for it. So its time there counts 1 + w times, where w is how many of the queued
  jobs would be fastest on that kind of slot, for each slot of the kind; at most 1. At these prices a job takes a slower slot
  that nobody else wants sooner than it would by its completion time alone.
* **Turns.** The job with the least product of its shortest time and the cube of its user's progress is next, where the progress
  includes the job. So users take turns if they differ in progress, and short jobs overtake long ones if they do not.
* **The limit.** A user whose progress is more than `limit` times the average, or `limit` times an equal share of one kind of
  slot if that is more, starts nothing, even if slots are idle. A job is held back for at most `patience` times its shortest
  time.

Progress is AlloX's (EuroSys 2020, section 3.3.2). The average is taken over users who have queued or running jobs.
docs/reproduction-allox.md compares this order with the paper's.
"""

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Remember, Rng
from scheduler_service.core.model.memo import shared_subject
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox import policy as allox
from scheduler_service.policies.allox.configuration_times import Known, times
from scheduler_service.policies.allox.matching.problem import NEVER, Ints
from scheduler_service.policies.allox.matching_input import Question
from scheduler_service.policies.allox.queue_levels import ORDER, queued_jobs
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.stages import Stages

NAME = "allox-priced"
HELD = NAME, shared_subject("", "held")
"""The memo of the time at which the next job may no longer be held back."""
HIGHEST_PRICE = 1.0
SHARPNESS = 3
"""The power of progress by which jobs take turns."""


class Settings(NamedTuple):
    """Settings of this policy alone. The last four are those of allox."""

    limit: float = 1.2
    """How many times the average progress a user may have and still start jobs; at least 1."""
    patience: float = 2
    """For how many times its shortest time a job may be held back by the limit."""
    reserved_cpus: float = 1
    unknown: float = 3600
    long: float = 200
    period: float = 1


LIMITS = {"limit": (1, 1e6), "patience": (0, 1e6), **allox.LIMITS}


def stages(options: Options) -> Stages:
    settings = own_settings(Settings, options.own)
    allox.check(settings, LIMITS)
    matched = allox.Settings(0, *settings[2:])
    answer = partial(partial, starts, limit=settings.limit, patience=settings.patience)
    known = Known(round(settings.unknown * SECOND))
    loop = allox.of_site(matched, known, allox.allox(matched, known, name=NAME, answer=answer))

    def policy(state: State, rng: Rng) -> Proposals:
        yield from loop(state, rng)
        yield from _wake(state, settings)

    return Stages(policy, ORDER, about=lambda _state, job: allox.times_compared(job, matched))


def _wake(state: State, settings: Settings) -> Proposals:
    """Remember when the next of the queued jobs may no longer be held back, so that the policy is asked again then."""
    now = state.cluster.clock_us
    ends = (_held_until(job.submitted_us, min(times(job, round(settings.unknown * SECOND))), settings.patience)
            for job in queued_jobs(state, ""))  # fmt: skip
    due = min((at for at in ends if at > now), default=None)
    memo = state.memos.rows.get(HELD)
    if due is None and memo is not None:
        yield (Remember(*HELD, None),)
    elif due is not None and (memo is None or memo.due_us != due):
        yield (Remember(*HELD, (), due_us=due),)


def _held_until(submitted: Micros, shortest: Micros, patience: float) -> Micros:
    return submitted + round(patience * shortest)


def starts(of: Question, limit: float, patience: float) -> tuple[int, ...]:
    """Return the jobs that start now, in the form of the question's own answer. `limit`, `patience`: see Settings."""
    return tuple(number for start in _starts(of, limit, patience) for number in start)


def _starts(of: Question, limit: float, patience: float) -> Iterator[tuple[int, int]]:
    count = len(of.jobs)
    shortest, fastest = of.times.min(axis=1), of.times.argmin(axis=1)
    share = of.values[np.arange(count), fastest]
    patient = of.now < of.arrived + np.rint(patience * shortest)
    free_at = [sorted(slots.tolist()) for slots in of.free_at]
    options = [[(kind, time) for kind, time in enumerate(row) if time != NEVER and free_at[kind]] for row in of.times.tolist()]
    received = np.array(of.received, np.float64)
    queued = shortest != NEVER
    while True:
        active = received > 0
        active[of.users[queued]] = True
        most = limit * max(received.sum(), 1) / max(np.count_nonzero(active), 1)
        turn = shortest * (received[of.users] + share) ** SHARPNESS
        rows = np.flatnonzero(queued & ~(patient & (received[of.users] > most)))
        rows = rows[np.lexsort((of.jobs[rows], turn[rows], of.levels[rows]))]
        found = _first(rows.tolist(), options, free_at, _prices(of, fastest[queued]).tolist(), of.now)
        if found is None:
            return
        row, kind = found
        heapq.heapreplace(free_at[kind], int(of.now + of.times[row, kind]))
        received[of.users[row]] += of.values[row, kind]
        queued[row] = False
        yield int(of.jobs[row]), int(of.configurations[row, kind])


def _prices(of: Question, fastest: Ints) -> NDArray[np.float64]:
    """The price of each kind: the factor of a job's time there. `fastest`: the fastest kind for each queued job."""
    slots = np.array([len(slots) for slots in of.free_at])
    waiting = np.bincount(fastest, minlength=len(slots))
    prices: NDArray[np.float64] = 1 + np.minimum(waiting / np.maximum(slots, 1), HIGHEST_PRICE)
    return prices


def _first(
    rows: Sequence[int],
    options: Sequence[Sequence[tuple[int, Micros]]],
    free_at: Sequence[list[Micros]],
    prices: Sequence[float],
    now: Micros,
) -> tuple[int, int] | None:
    """The row and the kind of slot of the first job that gets a slot that is free now. `rows` in the order of their turns;
    `options`: the kinds on which the job of each row can run, and its times there."""
    planned = [slots.copy() for slots in free_at]
    if all(not slots or slots[0] > now for slots in planned):
        return None
    for row in rows:
        if options[row]:
            _, kind, time = min((planned[kind][0] + time * prices[kind], kind, time) for kind, time in options[row])
            begin = planned[kind][0]
            if begin <= now:
                return row, kind
            heapq.heapreplace(planned[kind], begin + time)
    return None
