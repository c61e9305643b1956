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
from itertools import groupby
from math import isfinite
from typing import NamedTuple

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Place, Plan, Rng
from scheduler_service.core.model import Job, JobClass, JobState, Reason
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.state.free_resources import pack
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.board import Waiting, match, waiting
from scheduler_service.policies.allox.progress import by_progress, considered, progress, value
from scheduler_service.policies.allox.slots import Ints, Kinds, held, left, with_runs
from scheduler_service.policies.allox.ways import Way, ways
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.placing.first_fit import (
    no_room,
    offered_to,
    place_on,
    place_on_earmarks,
    start_on_earmarks,
)
from scheduler_service.policies.stages import Stages


class Settings(NamedTuple):
    """Settings of this policy alone."""

    alpha: float = 0.2
    """Which part of the users with queued jobs is considered, those with the lowest progress: from 0 (one user) to 1 (all)."""
    reserved_cpus: float = 1
    """CPU cores that jobs without devices leave for each free device of a node."""
    unknown: float = 3600
    """Seconds that a configuration without an estimate is taken to run."""


def stages(options: Options) -> Stages:
    settings = own_settings(Settings, options.own)
    if not 0 <= settings.alpha <= 1:
        raise ValueError(f"the setting alpha is {settings.alpha}; it must be from 0 to 1")
    if not 0 <= settings.reserved_cpus <= 1024:
        raise ValueError(f"the setting reserved_cpus is {settings.reserved_cpus}; it must be from 0 to 1024")
    if not (isfinite(settings.unknown) and 1 <= settings.unknown <= 1e8):
        raise ValueError(f"the setting unknown is {settings.unknown}; it must be from 1 to 100000000 seconds")
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

    def policy(state: State, _rng: Rng) -> Proposals:
        yield from start_on_earmarks(state, place_on_earmarks)
        queued = [job for job in _queued(state) if job.id not in state.earmarks_of]
        if queued:
            turn = _Round(state, settings)
            yield from turn.serve([waiting(job, of, turn.kinds) for job, of in zip(queued, all_ways(queued), strict=True)])

    return policy


def _queued(state: State) -> Iterator[Job]:
    keys = sorted(key for lane in OWN_LANES for key in state.waiting("", lane))
    return (state.jobs.rows[key[-1]] for key in keys)


def _ways(job: Job, settings: Settings) -> list[Way]:
    return ways(job, round(settings.unknown * SECOND))


def _level(one: Waiting) -> tuple[bool, int]:
    return one.job.spec.job_class is not JobClass.TRIAL, -one.job.priority


class _Round:
    """One look at the queue: what is known of slots and of users, kept up to date while jobs start."""

    def __init__(self, state: State, settings: Settings) -> None:
        self.state = state
        self.alpha = settings.alpha
        self.unknown_us = round(settings.unknown * SECOND)
        self.now = state.cluster.clock_us
        self.kinds = Kinds(state, round(settings.reserved_cpus * 1000))

    def serve(self, queued: Sequence[Waiting]) -> Proposals:
        self.runs = held(self.state, self.now, self.unknown_us)
        if any(len(slots) and slots[0] <= self.now for slots in self._free_at([])):
            self.received = progress(self.state, self.unknown_us)
            before: list[list[Waiting]] = []
            for _, level in groupby(sorted(queued, key=_level), key=_level):
                jobs = list(level)
                yield from self._serve_level(jobs, before)
                before.append([one for one in jobs if self._waits(one)])
        yield from self._tell(queued)

    def _serve_level(self, jobs: Sequence[Waiting], before: Sequence[Sequence[Waiting]]) -> Proposals:
        """Starts jobs of one priority, for as long as a matching has one that starts now. `before`: those of higher priority
        that still wait."""
        while there := [one for one in jobs if self._waits(one)]:
            users = by_progress({one.job.user for one in there}, self.received)
            free_at = self._free_at(before)
            count = considered(len(users), self.alpha)
            while not (yield from self._start(there, users, count, free_at)):
                if count == len(users):
                    return
                count = min(2 * count, len(users))

    def _start(
        self, there: Sequence[Waiting], users: Sequence[str], count: int, free_at: Sequence[Ints]
    ) -> Generator[Plan, str | None, bool]:
        """Starts what a matching of jobs of the first `count` users has first on free slots. Whether any job started. The next
        one is of those users who have the lowest progress then, unless all are considered."""
        turn = {user: place for place, user in enumerate(users[:count])}
        matched = match([one for one in there if one.job.user in turn], free_at, self.now)
        started = False
        for way in sorted(matched.starts, key=lambda way: (turn[way.job.user], way.job.submitted_us, way.job.id)):
            action = self._place(way.job, self.kinds.kinds[self.kinds.number(way.job)].reserved)
            if action is None or (yield (action,)) is not None:
                continue
            started = True
            self._has_started(way, action)
            if count < len(users):
                break
        return started

    def _place(self, one: Job, reserved: int) -> Place | None:
        tasks = one.spec.tasks()
        offered = left(offered_to(self.state, one), reserved)
        if one.avoid:
            without = offered.copy()
            without[:, list(one.avoid)] = -1
            if (nodes := pack(tasks, without)) is not None:
                return place_on(self.state, one, nodes)
        nodes = pack(tasks, offered)
        return None if nodes is None else place_on(self.state, one, nodes)

    def _has_started(self, way: Way, action: Place) -> None:
        tasks = zip((spot.node for spot in action.spots), way.job.spec.tasks(), strict=True)
        self.runs = with_runs(self.runs, tasks, self.now + way.time_us)
        whole = self.state.jobs.rows[action.job_id]
        of = ways(whole, self.unknown_us)
        user, configuration = way.job.user, way.job.configuration
        self.received[user] = self.received.get(user, 0.0) + value(self.state, of, configuration)

    def _free_at(self, before: Sequence[Sequence[Waiting]]) -> list[Ints]:
        """By kind: when its slots are free, after those who come before."""
        free_at = [self.kinds.free_at(kind, self.runs, self.now) for kind in self.kinds.kinds]
        for jobs in before:
            free_at = match(jobs, free_at, self.now).free_at
        return free_at

    def _waits(self, one: Waiting) -> bool:
        job = self.state.jobs.rows.get(one.job.id)
        return job is not None and job.state is JobState.QUEUED and job.reason is not Reason.ARRAY_LIMIT

    def _tell(self, queued: Sequence[Waiting]) -> Proposals:
        """Those that wait are told why, if that is not what they were told before."""
        possible = [kind.seats.sum() >= kind.tasks for kind in self.kinds.kinds]
        for one in queued:
            if self._waits(one):
                job = self.state.jobs.rows[one.job.id]
                if job.reason is not Reason.NO_ROOM or not any(possible[kind] for kind in one.kinds):
                    wait = no_room(self.state, job)
                    if wait.reason is not job.reason:
                        yield (wait,)
