"""allox: each job gets the configuration and the turn that minimize the sum of all completion times (AlloX, EuroSys 2020).

Whenever something changes, the queued jobs are matched to slots (section 3.1). Jobs that are the first on a slot that is free
now start there. The rest of the matching is discarded, since the next change makes a new one; so a free slot may stay idle if
the jobs that wait are done sooner elsewhere. No job is preempted.

Fairness (section 3.3): only jobs of the ceil(alpha n) users with the lowest progress are matched, of the n users who have
queued jobs. If none of these jobs starts, more users are considered immediately, so that slots are not idle for lack of users
(section 4.4). Jobs of higher priority, and trials before all others, are matched before those of lower priority, which get what
is left.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Delegate, Plan, Remember, Rng
from scheduler_service.core.model import Job
from scheduler_service.core.model.memo import ASKED, PLANNED, shared_subject, vc_of
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.queue_keys import unsampled_configurations
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.configuration_times import Known, Ways
from scheduler_service.policies.allox.matching.problem import NEVER
from scheduler_service.policies.allox.matching_input import Question, Start, decode_starts, progress
from scheduler_service.policies.allox.queue_levels import (
    ORDER,
    highest_levels,
    is_longer,
    is_waiting,
    level_of,
    queue_length,
    queued_jobs,
)
from scheduler_service.policies.allox.sampling import FIRST, Samples, not_to_be_sampled, start_samples, times_known
from scheduler_service.policies.allox.site_scope import Site
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.placing.first_fit import place_on_earmarks, start_on_earmarks
from scheduler_service.policies.scope import Ints, Scope, Slots, Starts
from scheduler_service.policies.stages import Stages

NAME = "allox"
PAUSES = "pauses"
PATIENCE = 10
"""How many periods a plan may take before another is asked for."""


Answer = Callable[[], tuple[int | str, ...]]
"""Gives the jobs that start now, encoded (see `decode_starts`)."""


def plan_of(vc: str, name: str = NAME) -> tuple[str, str]:
    """The key of the memo about the plan for the long queue of a virtual cluster or (empty) of the site: whether one is being
    made, was made, or is to be made next. `name` is the policy's."""
    return name, shared_subject(vc, "plan")


class Settings(NamedTuple):
    """Settings of this policy alone."""

    alpha: float = 0.2
    """The part of the users with queued jobs that is considered, the lowest progress first: from 0 (one user) to 1 (all)."""
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
    """Seconds after which a sample ends, whatever it has done."""
    measured: float = 0
    """1: nodes are asked for the rates of running jobs, which take the place of estimates of a job that was sampled."""


LIMITS = {"alpha": (0, 1), "reserved_cpus": (0, 1024), "unknown": (1, 1e8), "long": (0, 1e9), "period": (0.01, 3600)}
LIMITS |= {"sample_percent": (0, 50), "sample_share": (0, 1), "sample_most": (1, 1e6), "measured": (0, 1)}
NO_SAMPLES = Samples(0, 0, 0)


def stages(options: Options) -> Stages:
    settings = own_settings(Settings, options.own)
    check(settings, LIMITS)
    known = Known(round(settings.unknown * SECOND))
    samples = Samples(round(settings.sample_percent * 10_000), round(settings.sample_most * SECOND), settings.sample_share)
    starts = allox(settings, known, samples)

    def account(state: State, subject: str) -> Iterator[Remember]:
        """The plan of a virtual cluster is forgotten when the queue is short, or empty, so that it is not looked at."""
        if not is_longer(state, vc_of(subject), settings.long):
            yield Remember(NAME, subject, None)

    policy, order = of_site(settings, known, starts, samples), FIRST if samples.share_ppm else ORDER
    if settings.measured:
        order = order._replace(introspects=True)
    about = partial(_describe_times, settings=settings)
    return Stages(policy, order, starts=starts, account=account, about=about, learns=True)


def _describe_times(_state: State, job: Job, settings: Settings) -> str:
    return times_compared(job, settings)


def check(settings: tuple[float, ...], limits: Mapping[str, tuple[float, float]]) -> None:
    """Raises ValueError if a setting is not within its limits."""
    for name, (least, most) in limits.items():
        value = getattr(settings, name, least)
        if not least <= value <= most:
            raise ValueError(f"the setting {name} is {value:g}; it must be from {least:g} to {most:g}")


def of_site(settings: Settings, known: Known, starts: Starts, samples: Samples = NO_SAMPLES) -> Policy:
    """The loop of a site without virtual clusters."""

    def policy(state: State, rng: Rng) -> Proposals:
        yield from start_on_earmarks(state, place_on_earmarks)
        site = Site(state, known, round(settings.reserved_cpus * 1000))
        if samples.share_ppm:
            yield from start_samples(state, samples, known, site)
        yield from starts(state, site, rng)

    return policy


def times_compared(job: Job, settings: Settings) -> str:
    """For people: how long the job would run in each configuration, and how that is known."""
    if not job.spec.alternatives:
        return ""
    known = "" if not job.estimates and not unsampled_configurations(job) else f"; in all: {', '.join(times_known(job))}"
    return "it would run for: " + _times(Known(round(settings.unknown * SECOND)).ways_of(job)) + known


def _times(of: Ways, waits: Mapping[int, Micros] = MappingProxyType({})) -> str:
    """How long each configuration runs, and how long it would have waited for a slot, if not at once."""
    return ", ".join(
        f"configuration {number} {'never' if time >= NEVER else f'{time / SECOND:.0f} s'}"
        + (f" after a wait of {-(-wait // SECOND)} s" if wait else "")
        for number, time in enumerate(of.times_us)
        for wait in (waits.get(number, 0),)
    )


class Look(NamedTuple):
    """Queued jobs as they are now."""

    jobs: list[Job]
    ways: list[Ways]
    slots: Slots
    of_need: dict[int, Sequence[int]]
    """The kinds of slots of each need, by their numbers."""


def allox(
    settings: Settings,
    known: Known,
    samples: Samples = NO_SAMPLES,
    name: str = NAME,
    answer: Callable[[Question], Answer] = lambda question: question,
) -> Starts:
    """`name` is that of the policy; `answer` says what the answer to a question is worked out by, which can be pickled."""

    def waiting(state: State, vc: str) -> Iterator[Job]:
        """Jobs that are to be matched, by level. Virtual clusters take no samples."""
        return queued_jobs(state, vc) if vc or not samples.share_ppm else not_to_be_sampled(state)

    unknown_us = round(settings.unknown * SECOND)

    def look_at(state: State, scope: Scope, jobs: Iterable[Job]) -> Look:
        found = [job for job in jobs if is_waiting(state, job.id)]
        ways = list(map(known.ways_of, found))
        slots, needs = scope.slots(unknown_us), dict.fromkeys(need for of in ways for need in of.needs)
        # In the order of the queue: the numbers of needs depend on what was looked at before, and kinds must not.
        return Look(found, ways, slots, {need: slots.kinds(known.specs[need]) for need in needs})

    def ask(state: State, scope: Scope, seen: Look, rng: Rng) -> Question | None:
        """None: no slot is free that some job could have."""
        now = state.cluster.clock_us
        count = 1 + max((kind for kinds in seen.of_need.values() for kind in kinds), default=-1)
        if not any(map(seen.slots.is_free, range(count))):
            return None
        free_at = tuple(map(seen.slots.free_at, range(count)))
        received = progress(scope.holders(), known, seen.slots.share) if settings.alpha < 1 else {}
        return _question(now, settings.alpha, known, seen, free_at, received, rng)

    def start(state: State, scope: Scope, starts: Iterable[Start]) -> Generator[Plan, str | None, bool]:
        """Starts these jobs where there is room. Since the plan was made, jobs may have gone and slots may be in use. Returns
        whether any job started."""
        started = False
        for job_id, configuration, waits, where in starts:
            if is_waiting(state, job_id) and configuration <= len(state.jobs.rows[job_id].spec.alternatives):
                job = state.jobs.rows[job_id]
                why = f"estimated: {_times(known.ways_of(job), waits)}" if job.spec.alternatives else ""
                started |= yield from scope.start(job.in_configuration(configuration), where, why)
        return started

    def at_once(state: State, scope: Scope, rng: Rng, jobs: Callable[[State], Iterable[Job]]) -> Proposals:
        """Asks again until nothing starts. If kinds of slots overlap, a job may turn out to have no room; then the others are
        matched without it. Jobs that can never run leave the queue when they are told so; then others may be the first."""
        in_vain: set[int] = set()
        while any(True for _ in jobs(state)):
            seen = look_at(state, scope, (job for job in jobs(state) if job.id not in in_vain))
            question = ask(state, scope, seen, rng)
            starts = [] if question is None else decode_starts(answer(question)())
            if not starts:
                before = queue_length(state, scope.vc)
                yield from scope.tell([job for job in jobs(state) if is_waiting(state, job.id)] if in_vain else seen.jobs)
                if queue_length(state, scope.vc) == before:
                    return
                continue
            if not (yield from start(state, scope, starts)):
                in_vain.update(one.job for one in starts)

    def few_at_once(state: State, scope: Scope, rng: Rng) -> Proposals:
        """Trials, and jobs whose priority is higher than that of the many."""
        yield from at_once(state, scope, rng, lambda state: highest_levels(waiting(state, scope.vc), most=int(settings.long)))

    def by_and_by(state: State, scope: Scope, rng: Rng) -> Proposals:
        """A plan is asked for once a period, and carried out when it comes. In between only few jobs are looked at."""
        at = plan_of(scope.vc, name)
        now, memo = state.cluster.clock_us, state.memos.rows.get(at)
        period = round(settings.period * SECOND)
        if memo is not None and memo.value[0] == PLANNED:
            yield from start(state, scope, decode_starts(memo.value[1:]))
            yield (Remember(*at, (PAUSES,), due_us=now + period),)
        elif memo is None or memo.due:
            seen = look_at(state, scope, waiting(state, scope.vc))
            yield from scope.tell(seen.jobs)
            question = ask(state, scope, seen, rng)
            if question is None:
                yield (Remember(*at, (PAUSES,), due_us=now + period),)
            else:
                yield Delegate(*at, answer(question)), Remember(*at, (ASKED,), due_us=now + PATIENCE * period)

    def starts(state: State, scope: Scope, rng: Rng) -> Proposals:
        known.forget(len(state.jobs.rows))
        if is_longer(state, scope.vc, settings.long):
            yield from few_at_once(state, scope, rng)
            before = queue_length(state, scope.vc)
            yield from by_and_by(state, scope, rng)
            if queue_length(state, scope.vc) < before:  # those of the next level may be few now
                yield from few_at_once(state, scope, rng)
        if not is_longer(state, scope.vc, settings.long):
            at = plan_of(scope.vc, name)
            if at in state.memos.rows:
                yield (Remember(*at, None),)
            yield from at_once(state, scope, rng, partial(waiting, vc=scope.vc))

    return starts


def _question(
    now: Micros,
    alpha: float,
    known: Known,
    seen: Look,
    free_at: tuple[Ints, ...],
    received: Mapping[str, float],
    rng: Rng,
) -> Question:
    jobs, ways = seen.jobs, seen.ways
    counts = np.array([len(of.needs) for of in ways], np.int64)
    time = np.array(list(chain.from_iterable(of.times_us for of in ways)), np.int64)
    shortest = np.minimum.reduceat(time, np.cumsum(counts) - counts)
    kinds = [seen.of_need[need] for of in ways for need in of.needs]
    each = np.array(list(map(len, kinds)), np.int64)
    row = np.repeat(np.repeat(np.arange(len(ways)), counts), each)
    configuration = np.repeat(np.concatenate([np.arange(count) for count in counts]), each)
    kind, time = np.array(list(chain.from_iterable(kinds)), np.int64), np.repeat(time, each)
    fastest = {of.needs[of.fastest] for of in ways} if alpha < 1 else ()
    shares = {need: seen.slots.share(known.specs[need]) for need in sorted(fastest)}
    share = np.array([shares.get(of.needs[of.fastest], 0.0) for of in ways])
    shape = len(jobs), len(free_at)
    times, configurations, values = np.full(shape, NEVER, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    at = np.lexsort((-configuration, -time))  # of several configurations on one kind of slot, the fastest is last
    cells = row[at], kind[at]
    times[cells], configurations[cells] = time[at], configuration[at]
    values[cells] = (share * shortest)[row[at]] / time[at]
    levels = {level: number for number, level in enumerate(sorted({level_of(job) for job in jobs}))}
    names = _in_random_order(jobs, rng) if alpha < 1 else list(dict.fromkeys(job.user for job in jobs))
    users = {name: number for number, name in enumerate(dict.fromkeys(chain(names, received)))}
    return Question(
        now,
        alpha,
        np.array([job.id for job in jobs], np.int64),
        np.array([levels[level_of(job)] for job in jobs], np.int64),
        np.array([users[job.user] for job in jobs], np.int64),
        tuple(received.get(name, 0.0) for name in users),
        np.array([job.submitted_us for job in jobs], np.int64),
        times,
        configurations,
        values,
        free_at,
        tuple(map(seen.slots.place_of_kind, range(len(free_at)))),
    )


def _in_random_order(jobs: Iterable[Job], rng: Rng) -> list[str]:
    """The users of the jobs, each order as likely as any other, and the same whatever their names are."""
    users = list(dict.fromkeys(job.user for job in sorted(jobs, key=lambda job: job.id)))
    for last in range(len(users) - 1, 0, -1):
        other = rng.randrange(last + 1)
        users[last], users[other] = users[other], users[last]
    return users
