"""allox: each job gets the configuration and the turn that minimise the sum of all completion times (AlloX, EuroSys 2020).

Whenever something changes, the queued jobs are matched to slots (section 3.1). Jobs that are the first on a slot that is free
now start there. The rest of the matching is discarded, since the next change makes a new one; so a free slot may stay idle if
the jobs that wait are done sooner elsewhere. Nobody is preempted.

Fairness (section 3.3): only jobs of the ceil(alpha n) users with the lowest progress are matched, of the n users who have
queued jobs. If none of these jobs starts, more users are considered at once, so that slots are not idle for want of users
(section 4.4). Jobs of higher priority, and trials before all others, are matched before those of lower priority, which get
what is left.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Delegate, Place, Plan, Remember, Rng
from scheduler_service.core.model import Job, JobClass, JobState, Reason
from scheduler_service.core.model.memo import ASKED, PLANNED, shared
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.free_resources import pack
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.progress import Shares, progress, values
from scheduler_service.policies.allox.question import Question, nothing_starts
from scheduler_service.policies.allox.slots import Kinds, held, left
from scheduler_service.policies.allox.ways import Way, ways
from scheduler_service.policies.matching.problem import NEVER
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.placing.first_fit import no_room, offered_to, place_on, place_on_earmarks, start_on_earmarks
from scheduler_service.policies.stages import Stages

NAME = "allox"
AT = NAME, shared("", "plan")
"""The memo of a long queue: of which a plan is being made, or was made, or is to be made next."""
PAUSES = "pauses"
PATIENCE = 10
"""How many periods a plan may take before another is asked for."""


class Settings(NamedTuple):
    """Settings of this policy alone."""

    alpha: float = 0.2
    """Which part of the users with queued jobs is considered, those with the lowest progress: from 0 (one user) to 1 (all)."""
    reserved_cpus: float = 1
    """CPU cores that jobs without devices leave for each free device of a node."""
    unknown: float = 3600
    """Seconds that a configuration without an estimate is taken to run."""
    long: float = 500
    """With more queued jobs than this, another process makes the plan, once a period; 0: always."""
    period: float = 1
    """Seconds between two plans for a long queue."""


LIMITS = {"alpha": (0, 1), "reserved_cpus": (0, 1024), "unknown": (1, 1e8), "long": (0, 1e9), "period": (0.01, 3600)}


def stages(options: Options) -> Stages:
    settings = own_settings(Settings, options.own)
    for name, (least, most) in LIMITS.items():
        if not least <= (value := getattr(settings, name)) <= most:
            raise ValueError(f"the setting {name} is {value:g}; it must be from {least:g} to {most:g}")
    return Stages(allox(settings), about=lambda _state, job: times_compared(job, settings))


def times_compared(job: Job, settings: Settings) -> str:
    """For people: how long the job would run in each configuration."""
    if not job.spec.alternatives:
        return ""
    times = (f"configuration {way.job.configuration} {way.time_us / SECOND:.0f} s" for way in _ways(job, settings))
    return f"it would run for: {', '.join(times)}"


def allox(settings: Settings) -> Policy:
    """The loop of a site without virtual clusters."""
    known: dict[int, tuple[Job, list[Way]]] = {}

    def all_ways(queued: Sequence[Job]) -> list[list[Way]]:
        """The ways of each job. Those of jobs that were queued before and have not changed are known: they are many."""
        found = {}
        for job in queued:
            before = known.get(job.id)
            found[job.id] = before if before is not None and before[0] is job else (job, _ways(job, settings))
        known.clear()
        known.update(found)
        return [of for _, of in found.values()]

    def ask(state: State) -> tuple[Question, Kinds, list[Job]]:
        queued = sorted((job for job in _queued(state) if _waits(state, job.id)), key=_level)
        kinds = Kinds(state, round(settings.reserved_cpus * 1000))
        return _question(state, settings, kinds, queued, all_ways(queued)), kinds, queued

    def at_once(state: State) -> Proposals:
        while True:
            question, kinds, queued = ask(state)
            starts = () if nothing_starts(question) else question()
            if not (yield from _start(state, kinds, starts)):
                yield from _tell(state, kinds, queued)
                return

    def by_and_by(state: State) -> Proposals:
        """A plan is asked for once a period, and carried out when it comes. Nothing is looked at in between."""
        now, memo = state.cluster.clock_us, state.memos.rows.get(AT)
        period = round(settings.period * SECOND)
        if memo is not None and memo.value[0] == PLANNED:
            kinds = Kinds(state, round(settings.reserved_cpus * 1000))
            yield from _start(state, kinds, [int(number) for number in memo.value[1:]])
            yield (Remember(*AT, (PAUSES,), due_us=now + period),)
        elif memo is None or memo.due:
            question, kinds, queued = ask(state)
            yield from _tell(state, kinds, queued)
            if nothing_starts(question):
                yield (Remember(*AT, (PAUSES,), due_us=now + period),)
            else:
                yield Delegate(*AT, question), Remember(*AT, (ASKED,), due_us=now + PATIENCE * period)

    def is_long(state: State) -> bool:
        return sum(len(state.site_queues[lane]) for lane in OWN_LANES) > settings.long

    def policy(state: State, _rng: Rng) -> Proposals:
        yield from start_on_earmarks(state, place_on_earmarks)
        if is_long(state):
            yield from by_and_by(state)
        if not is_long(state):
            if AT in state.memos.rows:
                yield (Remember(*AT, None),)
            yield from at_once(state)

    return policy


def _queued(state: State) -> Iterator[Job]:
    keys = sorted(key for lane in OWN_LANES for key in state.waiting("", lane))
    return (state.jobs.rows[key[-1]] for key in keys)


def _ways(job: Job, settings: Settings) -> list[Way]:
    return ways(job, round(settings.unknown * SECOND))


def _level(job: Job) -> tuple[bool, int]:
    return job.spec.job_class is not JobClass.TRIAL, -job.priority


def _waits(state: State, job_id: int) -> bool:
    """Whether the job is queued, with nothing kept for it anywhere."""
    job = state.jobs.rows.get(job_id)
    waits = job is not None and job.state is JobState.QUEUED and job.reason is not Reason.ARRAY_LIMIT
    return waits and job_id not in state.earmarks_of


def _question(
    state: State, settings: Settings, kinds: Kinds, queued: Sequence[Job], of_each: Sequence[Sequence[Way]]
) -> Question:
    now, unknown_us = state.cluster.clock_us, round(settings.unknown * SECOND)
    of_kinds = [[kinds.number(way.job) for way in of] for of in of_each]
    shape = len(queued), len(kinds.kinds)
    times, configurations = np.full(shape, NEVER, np.int64), np.zeros(shape, np.int64)
    gained = [[0.0] * shape[1] for _ in queued]
    shares, is_fair = Shares(state), settings.alpha < 1
    for row, (of, numbers) in enumerate(zip(of_each, of_kinds, strict=True)):
        for way, kind, value in zip(of, numbers, values(shares, of) if is_fair else [0.0] * len(of), strict=True):
            if way.time_us < times[row, kind]:
                times[row, kind], configurations[row, kind] = way.time_us, way.job.configuration
                gained[row][kind] = value
    levels = {level: number for number, level in enumerate(sorted({_level(job) for job in queued}))}
    names = sorted({job.user for job in queued})
    users = {name: number for number, name in enumerate(names)}
    received = progress(state, unknown_us) if is_fair else {}
    runs = held(state, now, unknown_us)
    return Question(
        now,
        settings.alpha,
        np.array([job.id for job in queued], np.int64),
        np.array([levels[_level(job)] for job in queued], np.int64),
        np.array([users[job.user] for job in queued], np.int64),
        tuple(received.get(name, 0.0) for name in names),
        np.array([job.submitted_us for job in queued], np.int64),
        times,
        configurations,
        tuple(map(tuple, gained)),
        tuple(kinds.free_at(kind, runs, now) for kind in kinds.kinds),
    )


def _start(state: State, kinds: Kinds, starts: Sequence[int]) -> Generator[Plan, str | None, bool]:
    """Starts these jobs where there is room: the id and the configuration of each in turn. Whether any started. Since the plan
    was made, jobs may have gone and nodes filled up."""
    started = False
    for job_id, configuration in zip(starts[::2], starts[1::2], strict=True):
        if _waits(state, job_id) and configuration <= len(state.jobs.rows[job_id].spec.alternatives):
            one = state.jobs.rows[job_id].configured(configuration)
            action = _place(state, one, kinds.kinds[kinds.number(one)].reserved)
            started |= action is not None and (yield (action,)) is None
    return started


def _place(state: State, one: Job, reserved: int) -> Place | None:
    tasks = one.spec.tasks()
    offered = left(offered_to(state, one), reserved)
    if one.avoid:
        without = offered.copy()
        without[:, list(one.avoid)] = -1
        if (nodes := pack(tasks, without)) is not None:
            return place_on(state, one, nodes)
    nodes = pack(tasks, offered)
    return None if nodes is None else place_on(state, one, nodes)


def _tell(state: State, kinds: Kinds, queued: Sequence[Job]) -> Proposals:
    """Those that wait are told why, if that is not what they were told before."""
    possible = [kind.seats.sum() >= kind.tasks for kind in kinds.kinds]
    for job in queued:
        if job.reason is Reason.NO_ROOM and any(possible[kinds.number(one)] for one in job.in_each_configuration()):
            continue
        wait = no_room(state, job)
        if wait.reason is not job.reason:
            yield (wait,)
