"""A loop for rules that choose a queued job together with its configuration, such as the shortest one that has room.

Such rules differ in four small functions (`Rule`). AlloX+ is one; the simulator compares others with AlloX. No job is
preempted.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.messages import Place, Rng
from scheduler_service.core.model import Job, JobClass, JobSpec, JobState, Reason
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.configuration_times import Known, Way, ways
from scheduler_service.policies.allox.slots import Kinds, without_reserved
from scheduler_service.policies.placing.closest import pack_closely
from scheduler_service.policies.placing.first_fit import no_room, offered_to, place_on, place_on_earmarks, start_on_earmarks
from scheduler_service.policies.placing.joining import join

Key = tuple[Micros, ...]


def any_way(_state: State, _board: "Board", of: Sequence[Way]) -> Sequence[Way]:
    return of


def by_arrival(way: Way, _now: Micros) -> Key:
    return way.job.submitted_us, way.job.id, way.time_us


def by_time(way: Way, _now: Micros) -> Key:
    return way.time_us, way.job.submitted_us, way.job.id


def nobody_first(_state: State, board: "Board") -> Iterable[Sequence[str]]:
    return [board.users()]


def without_limit(_state: State, _board: "Board", _way: Way) -> bool:
    return True


class Rule(NamedTuple):
    """Jobs of higher priority, and trials before all others, come first under any rule."""

    key: Callable[[Way, Micros], Key]
    """The sort key; the least comes first. Of a user's jobs for one kind of slot, only the shortest and the oldest are
    compared."""
    offers: Callable[[State, "Board", Sequence[Way]], Sequence[Way]] = any_way
    """The configurations that a job may run in. Asked once, when the job comes to the queue."""
    turns: Callable[[State, "Board"], Iterable[Sequence[str]]] = nobody_first
    """Groups of users. The jobs of a group are looked at if those of the groups before have no room."""
    may_start: Callable[[State, "Board", Way], bool] = without_limit
    """Whether the job's user may have one more job in this configuration."""


class Item(NamedTuple):
    """A queued job as it was when it came to the queue."""

    job: Job
    offered: Sequence[Way]


class Launched(NamedTuple):
    """A job that has a run."""

    user: str
    configuration: int
    spec: JobSpec
    """The job's spec in this configuration."""


_Heap = list[tuple[tuple[bool, int], Key, int, Item, Way]]
_Kind = tuple[str, Needs]
"""A user, and what a configuration asks for."""


class Board:
    """The queued jobs by their users and by what they ask for. It is kept between looks at the queue, as there may be thousands
    of jobs, and follows from the queue alone."""

    def __init__(self) -> None:
        self.queued: dict[int, Item] = {}
        """Queued jobs by id, in the order in which they came to the queue."""
        self._shortest: dict[_Kind, _Heap] = {}
        self._oldest: dict[_Kind, _Heap] = {}
        self._of: dict[str, int] = {}
        self._pushed = 0
        self._launched: dict[int, tuple[int, Launched]] = {}
        """Launches of active jobs by job id, each with its number."""

    def users(self) -> list[str]:
        """Return the users who have queued jobs."""
        return sorted(user for user, count in self._of.items() if count)

    def refresh(self, state: State, rule: Rule, unknown_us: Micros) -> list[Job]:
        """Add jobs that came to the queue, and drop those that left it. Returns those that came."""
        rows = state.jobs.rows
        there = {key[-1] for lane in OWN_LANES for key in state.waiting("", lane)}
        there.difference_update(state.earmarks_of)
        for job_id in [
            job_id for job_id, item in self.queued.items() if job_id not in there or _has_changed(item.job, rows[job_id])
        ]:
            self.forget(job_id)
        come = [rows[job_id] for job_id in sorted(there.difference(self.queued))]
        for job in come:
            self._add(job, rule.offers(state, self, ways(job, unknown_us)))
        return come

    def _add(self, job: Job, offered: Sequence[Way]) -> None:
        item = self.queued[job.id] = Item(job, offered)
        self._of[job.user] = self._of.get(job.user, 0) + 1
        level = (job.spec.job_class is not JobClass.TRIAL, -job.priority)
        for way in offered:
            kind = job.user, way.job.spec.needs()
            self._pushed += 1
            for heaps, key in ((self._shortest, by_time), (self._oldest, by_arrival)):
                heapq.heappush(heaps.setdefault(kind, []), (level, key(way, 0), self._pushed, item, way))

    def forget(self, job_id: int) -> None:
        self._of[self.queued.pop(job_id).job.user] -= 1

    def launched_jobs(self, state: State) -> list[Launched]:
        """The jobs that have a run, in the order of their ids."""
        before, rows = self._launched, state.jobs.rows
        self._launched = {}
        for job_id in sorted(state.active):
            job, known = rows[job_id], before.get(job_id)
            if known is None or known[0] != job.run:
                known = job.run, Launched(job.user, job.configuration, job.launch_spec)
            self._launched[job_id] = known
        return [of for _, of in self._launched.values()]

    def heads(self, users: Iterable[str], full: Iterable[Needs]) -> Iterator[tuple[tuple[bool, int], Way]]:
        """For each of these users and each kind of slot that is not full, the shortest and the oldest job, with its level."""
        wanted, shut = set(users), set(full)
        for kind in self._shortest:
            if kind[0] in wanted and kind[1] not in shut:
                for heap in (self._shortest[kind], self._oldest[kind]):
                    while heap and self.queued.get(heap[0][3].job.id) is not heap[0][3]:
                        heapq.heappop(heap)
                    if heap:
                        yield heap[0][0], heap[0][4]


def _has_changed(before: Job, now: Job) -> bool:
    """Whether the job is to be looked at again: it has run since, or its priority or spec has changed."""
    return before is not now and (before.run, before.priority, before.spec) != (now.run, now.priority, now.spec)


def choosing(rule: Rule, unknown_us: Micros, reserved_cpu_milli: int) -> Policy:
    """The loop of a site without virtual clusters. `unknown_us`, `reserved_cpu_milli`: see the settings of allox."""
    board, known = Board(), Known(unknown_us)

    def policy(state: State, _rng: Rng) -> Proposals:
        yield from start_on_earmarks(state, place_on_earmarks)
        come = board.refresh(state, rule, unknown_us)
        kinds = Kinds(state, known, reserved_cpu_milli)
        full: set[Needs] = set()
        while (found := _next_start(state, board, rule, kinds, full)) is not None:
            if (yield (found,)) is not None:
                full.add(state.jobs.rows[found.job_id].spec.in_configuration(found.configuration).needs())
            elif not _waits(state, found.job_id):
                board.forget(found.job_id)
        told = [state.jobs.rows[job_id] for job_id in sorted(board.queued)] if state.pending.inventory else come
        for job in told:
            if _waits(state, job.id) and (wait := no_room(state, job)).reason is not job.reason:
                yield (wait,)

    return policy


def _waits(state: State, job_id: int) -> bool:
    job = state.jobs.rows.get(job_id)
    return job is not None and job.state is JobState.QUEUED and job.reason is not Reason.ARRAY_LIMIT


def _next_start(state: State, board: Board, rule: Rule, kinds: Kinds, full: set[Needs]) -> Place | None:
    """The start of the first job that has room. `full`: needs for which there is no room; those found here are added."""
    now = state.cluster.clock_us
    for users in rule.turns(state, board):
        closed: dict[str, set[Needs]] = {}
        while True:
            ranked = [
                ((level, rule.key(way, now)), way)
                for level, way in board.heads(users, full)
                if way.job.spec.needs() not in closed.get(way.job.user, ())
            ]
            if not ranked:
                break
            _, way = min(ranked, key=lambda one: one[0])
            needs = way.job.spec.needs()
            if not rule.may_start(state, board, way):
                closed.setdefault(way.job.user, set()).add(needs)
            elif (start := _place(state, way.job, kinds)) is not None:
                return start
            else:
                full.add(needs)
    return None


def _place(state: State, one: Job, kinds: Kinds) -> Place | None:
    """Nodes that the job is to avoid come last. A job without devices leaves CPUs for each free device of a node."""
    if (joined := join(state, one, avoid=one.avoid)) is not None:
        return joined
    offered = without_reserved(offered_to(state, one), kinds.kind_of(one.spec).reserved)
    without = offered.copy()
    without[:, list(one.avoid)] = -1
    nodes = (pack_closely(state, one.spec.tasks(), without) if one.avoid else None) or pack_closely(
        state, one.spec.tasks(), offered
    )
    return None if nodes is None else place_on(state, one, nodes)
