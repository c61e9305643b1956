"""allox: each job gets the configuration and the turn that minimise the sum of all completion times (AlloX, EuroSys 2020).

Whenever something changes, the queued jobs are matched to slots (section 3.1). Jobs that are the first on a slot that is free
now start there. The rest of the matching is discarded, since the next change makes a new one; so a free slot may stay idle if
the jobs that wait are done sooner elsewhere. Nobody is preempted.

Fairness (section 3.3): only jobs of the ceil(alpha n) users with the lowest progress are matched, of the n users who have
queued jobs. If none of these jobs starts, more users are considered at once, so that slots are not idle for want of users
(section 4.4). Jobs of higher priority, and trials before all others, are matched before those of lower priority, which get
what is left.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice
from typing import NamedTuple

import numpy as np

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Delegate, Place, Plan, Remember, Rng
from scheduler_service.core.model import Job, JobClass, Reason
from scheduler_service.core.model.memo import ASKED, PLANNED, Memo, shared
from scheduler_service.core.model.settings import Settings as EngineSettings
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.free_resources import pack
from scheduler_service.core.state.queue_keys import OWN_LANES, stands, unsampled
from scheduler_service.core.state.queue_order import QueueKey, QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.progress import progress
from scheduler_service.policies.allox.question import Question
from scheduler_service.policies.allox.sampling import FIRST, Samples, not_to_be_sampled, start_samples, times_known
from scheduler_service.policies.allox.slots import Ints, Kinds, held, left
from scheduler_service.policies.allox.ways import Known, Ways
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


def by_level(job: Job, _memo: Memo | None, _settings: EngineSettings) -> QueueKey:
    """By priority alone: who of one priority is served next is the matching's to say."""
    return -job.priority, job.id


ORDER = QueueOrder(by_level)
"""Where no samples are taken; else see `sampling.FIRST`."""


class Settings(NamedTuple):
    """Settings of this policy alone."""

    alpha: float = 0.2
    """Which part of the users with queued jobs is considered, those with the lowest progress: from 0 (one user) to 1 (all)."""
    reserved_cpus: float = 1
    """CPU cores that jobs without devices leave for each free device of a node."""
    unknown: float = 3600
    """Seconds that a configuration without an estimate is taken to run."""
    long: float = 200
    """With more queued jobs than this, another process makes the plan, once a period; 0: always."""
    period: float = 1
    """Seconds between two plans for a long queue."""
    sample_percent: float = 3
    """Which part of a job's steps is done in each configuration without an estimate, to measure how long the job would run
    there; 0: nothing is measured."""
    sample_share: float = 0.5
    """Which part of the cluster all samples together may hold; one sample may always run."""
    sample_most: float = 300
    """Seconds after which a sample is stopped, whatever it has done."""


LIMITS = {"alpha": (0, 1), "reserved_cpus": (0, 1024), "unknown": (1, 1e8), "long": (0, 1e9), "period": (0.01, 3600)}
LIMITS |= {"sample_percent": (0, 50), "sample_share": (0, 1), "sample_most": (1, 1e6)}


def stages(options: Options) -> Stages:
    settings = own_settings(Settings, options.own)
    for name, (least, most) in LIMITS.items():
        if not least <= (value := getattr(settings, name)) <= most:
            raise ValueError(f"the setting {name} is {value:g}; it must be from {least:g} to {most:g}")
    samples = Samples(round(settings.sample_percent * 10_000), round(settings.sample_most * SECOND), settings.sample_share)
    order = FIRST if samples.share_ppm else ORDER
    return Stages(allox(settings, samples), order, about=lambda _state, job: times_compared(job, settings), learns=True)


def times_compared(job: Job, settings: Settings) -> str:
    """For people: how long the job would run in each configuration, and how that is known."""
    if not job.spec.alternatives:
        return ""
    known = "" if not job.estimates and not unsampled(job) else f"; in all: {', '.join(times_known(job))}"
    return "it would run for: " + _times(Known(round(settings.unknown * SECOND)).of(job)) + known


def _times(of: Ways) -> str:
    return ", ".join(
        f"configuration {number} " + ("never" if time >= NEVER else f"{time / SECOND:.0f} s")
        for number, time in enumerate(of.times_us)
    )


class Look(NamedTuple):
    """Queued jobs as they are now."""

    jobs: list[Job]
    ways: list[Ways]
    kinds: Kinds
    of_need: dict[int, int]
    """The kind of slot of each need, by their numbers."""


def allox(settings: Settings, samples: Samples) -> Policy:
    """The loop of a site without virtual clusters."""
    known = Known(round(settings.unknown * SECOND))
    queued = not_to_be_sampled if samples.share_ppm else _queued

    def kinds_of(state: State) -> Kinds:
        return Kinds(state, known, round(settings.reserved_cpus * 1000))

    def look(state: State, jobs: Iterable[Job]) -> Look:
        found = [job for job in jobs if _waits(state, job.id)]
        known.forget(len(found) + len(state.active))
        ways = list(map(known.of, found))
        kinds, needs = kinds_of(state), dict.fromkeys(need for of in ways for need in of.needs)
        # In the order of the queue: the numbers of needs depend on what was looked at before, and kinds must not.
        return Look(found, ways, kinds, {need: kinds.number(need) for need in needs})

    def ask(state: State, seen: Look) -> Question | None:
        """None: no slot is free that some job could have."""
        now = state.cluster.clock_us
        runs = held(state, now, round(settings.unknown * SECOND))
        free_at = tuple(seen.kinds.free_at(kind, runs, now) for kind in seen.kinds.kinds)
        if not any(len(slots) and slots[0] <= now for slots in free_at):
            return None
        received = progress(state, known, seen.kinds) if settings.alpha < 1 else {}
        return _question(now, settings.alpha, seen, free_at, received)

    def at_once(state: State, jobs: Callable[[State], Iterable[Job]]) -> Proposals:
        while any(True for _ in jobs(state)):
            seen = look(state, jobs(state))
            question = ask(state, seen)
            if question is None or not (yield from _start(state, known, seen.kinds, question())):
                yield from _tell(state, seen)
                return

    def few_at_once(state: State) -> Proposals:
        """Trials, and jobs whose priority is higher than that of the many."""
        yield from at_once(state, lambda state: _highest_levels(queued(state), most=int(settings.long)))

    def by_and_by(state: State) -> Proposals:
        """A plan is asked for once a period, and carried out when it comes. In between only few jobs are looked at."""
        now, memo = state.cluster.clock_us, state.memos.rows.get(AT)
        period = round(settings.period * SECOND)
        if memo is not None and memo.value[0] == PLANNED:
            yield from _start(state, known, kinds_of(state), [int(number) for number in memo.value[1:]])
            yield (Remember(*AT, (PAUSES,), due_us=now + period),)
        elif memo is None or memo.due:
            seen = look(state, queued(state))
            yield from _tell(state, seen)
            question = ask(state, seen)
            if question is None:
                yield (Remember(*AT, (PAUSES,), due_us=now + period),)
            else:
                yield Delegate(*AT, question), Remember(*AT, (ASKED,), due_us=now + PATIENCE * period)

    def length(state: State) -> int:
        return sum(len(state.site_queues[lane]) for lane in OWN_LANES)

    def policy(state: State, _rng: Rng) -> Proposals:
        yield from start_on_earmarks(state, place_on_earmarks)
        if samples.share_ppm:
            kinds = kinds_of(state)
            yield from start_samples(
                state, samples, known, kinds, lambda state, one: _place(state, one, kinds.of(one.spec).reserved)
            )
        if length(state) > settings.long:
            yield from few_at_once(state)
            before = length(state)
            yield from by_and_by(state)
            if length(state) < before:  # those of the next level may be few now
                yield from few_at_once(state)
        if length(state) <= settings.long:
            if AT in state.memos.rows:
                yield (Remember(*AT, None),)
            yield from at_once(state, queued)

    return policy


def _queued(state: State) -> Iterator[Job]:
    """All queued jobs, by level."""
    return (state.jobs.rows[key[-1]] for lane in OWN_LANES for key in state.waiting("", lane))


def _highest_levels(queued: Iterable[Job], most: int) -> list[Job]:
    """The jobs of the highest levels, all of each; `most` of them together at most. `queued`: by level."""
    found: list[Job] = []
    for _, level in groupby(queued, key=_level):
        jobs = list(islice(level, most - len(found) + 1))
        if len(found) + len(jobs) > most:
            break
        found += jobs
    return found


def _level(job: Job) -> tuple[bool, int]:
    return job.spec.job_class is not JobClass.TRIAL, -job.priority


def _waits(state: State, job_id: int) -> bool:
    """Whether the job is in its queue, with nothing kept for it anywhere."""
    job = state.jobs.rows.get(job_id)
    return job is not None and stands(job) and job_id not in state.earmarks_of


def _question(now: Micros, alpha: float, seen: Look, free_at: tuple[Ints, ...], received: Mapping[str, float]) -> Question:
    jobs, ways = seen.jobs, seen.ways
    counts = np.array([len(of.needs) for of in ways], np.int64)
    row = np.repeat(np.arange(len(ways)), counts)
    configuration = np.concatenate([np.arange(count) for count in counts])
    kind = np.array([seen.of_need[need] for of in ways for need in of.needs], np.int64)
    time = np.array(list(chain.from_iterable(of.times_us for of in ways)), np.int64)
    shortest = np.minimum.reduceat(time, np.cumsum(counts) - counts)
    shares = {need: seen.kinds.share(need) for need in sorted({of.needs[of.fastest] for of in ways})} if alpha < 1 else {}
    share = np.array([shares.get(of.needs[of.fastest], 0.0) for of in ways])
    shape = len(jobs), len(free_at)
    times, configurations, values = np.full(shape, NEVER, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    at = np.lexsort((-configuration, -time))  # of several configurations on one kind of slot, the fastest is last
    cells = row[at], kind[at]
    times[cells], configurations[cells] = time[at], configuration[at]
    values[cells] = (share * shortest)[row[at]] / time[at]
    levels = {level: number for number, level in enumerate(sorted({_level(job) for job in jobs}))}
    names = sorted({job.user for job in jobs})
    users = {name: number for number, name in enumerate(names)}
    return Question(
        now,
        alpha,
        np.array([job.id for job in jobs], np.int64),
        np.array([levels[_level(job)] for job in jobs], np.int64),
        np.array([users[job.user] for job in jobs], np.int64),
        tuple(received.get(name, 0.0) for name in names),
        np.array([job.submitted_us for job in jobs], np.int64),
        times,
        configurations,
        values,
        free_at,
    )


def _start(state: State, known: Known, kinds: Kinds, starts: Sequence[int]) -> Generator[Plan, str | None, bool]:
    """Starts these jobs where there is room: the id and the configuration of each in turn. Whether any started. Since the plan
    was made, jobs may have gone and nodes filled up."""
    started = False
    for job_id, configuration in zip(starts[::2], starts[1::2], strict=True):
        if _waits(state, job_id) and configuration <= len(state.jobs.rows[job_id].spec.alternatives):
            job = state.jobs.rows[job_id]
            kind = kinds.kinds[kinds.number(known.of(job).needs[configuration])]
            action = _place(state, job.configured(configuration), kind.reserved)
            if action is not None and job.spec.alternatives:
                action = replace(action, why=f"estimated: {_times(known.of(job))}")
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


def _tell(state: State, seen: Look) -> Proposals:
    """Those that wait are told why, if that is not what they were told before."""
    possible = [kind.seats.sum() >= kind.tasks for kind in seen.kinds.kinds]
    has_slots = {need for need, kind in seen.of_need.items() if possible[kind]}
    for job, of in zip(seen.jobs, seen.ways, strict=True):
        if job.reason is not Reason.NO_ROOM or has_slots.isdisjoint(of.needs):
            wait = no_room(state, job)
            if wait.reason is not job.reason:
                yield (wait,)
