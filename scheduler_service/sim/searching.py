"""A simulated user who searches for one configuration among many (Gandiva, section 6.2).

The user looks at the jobs every few seconds, like a program that reads their output, and uses only the API: stops unpromising
jobs, suspends and resumes jobs, and raises the priority of the best ones. Jobs take turns only with their equals, so a job of a
higher priority has its device to itself once the jobs that shared it are gone. These are suspended, and resumed as soon as they
have stopped, so that they take turns elsewhere.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from scheduler_service.core.messages import CancelRequested, Event, ResumeRequested, SuspendRequested, UpdateRequested
from scheduler_service.core.model import Job, JobState
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.sim.experiments.job_outcomes import Life
from scheduler_service.sim.jobs import Arrivals, Load, SimJob
from scheduler_service.sim.workloads import gandiva_shared
from scheduler_service.sim.workloads.arriving import Timed
from scheduler_service.sim.workloads.gandiva_search import (
    NO_PROMISE,
    GandivaSearch,
    configurations,
    jobs,
    number_of,
)
from scheduler_service.sim.workloads.gandiva_shared import GandivaShared

LOOKS_US = 15 * SECOND
RUNS = (JobState.STARTING, JobState.RUNNING)


class _Member(NamedTuple):
    """A configuration that has a job now."""

    number: int
    job: Job
    evaluations: int
    predicted: float
    """Predicted value; 0 before the first evaluation."""


class Search:
    """The arrivals of one search, and the actions of its user."""

    def __init__(self, model: GandivaSearch, seed: int, its: Iterable[SimJob] | None = None, begins_us: Micros = 0) -> None:
        """`its`: the jobs, if they are not just those of the model, and the search begins later."""
        self._model = model
        self._configurations = configurations(model, seed)
        mine = list(jobs(model) if its is None else its)
        self._user = mine[0].user
        self._arrivals = Timed(iter(mine))
        self.begins_us = begins_us
        self._looked = begins_us
        self._cancelled: set[int] = set()
        self.found_us: Micros | None = None
        """When the right configuration was known."""
        self.explored_us: dict[int, Micros] = {}
        """When the first evaluation of each configuration was seen."""
        self.promotions = 0

    # ---- arrivals ----------------------------------------------------------------------------------------------------------

    def next_us(self, now: Micros, load: Load) -> Micros | None:
        return None if self.found_us is not None else self._arrivals.next_us(now, load)

    def take(self, now: Micros, load: Load) -> Sequence[SimJob]:
        return () if self.found_us is not None else self._arrivals.take(now, load)

    # ---- the user ----------------------------------------------------------------------------------------------------------

    def looks_us(self) -> Micros | None:
        """When the user looks next; None if never again."""
        return None if self.found_us is not None else self._looked + LOOKS_US

    def acts(self, state: State, lives: Mapping[int, Life], now: Micros) -> Iterator[Event]:
        """The requests of the user."""
        self._looked = now
        members = list(self._members(state, lives, now))
        right = next((one for one in members if one.number == self._model.position), None)
        if right is not None and self._is_known(lives[right.job.id], now):
            self.found_us = now
            yield from (CancelRequested(one.job.id) for one in members)
            return
        left = []
        for one in members:
            if one.evaluations and one.predicted < NO_PROMISE:
                self._cancelled.add(one.number)
                yield CancelRequested(one.job.id)
            else:
                left.append(one)
        if self._model.exclusive:
            yield from self._prioritize(state, left)

    def _members(self, state: State, lives: Mapping[int, Life], now: Micros) -> Iterator[_Member]:
        """The configurations whose jobs have neither ended nor been cancelled."""
        for job_id, life in lives.items():
            if life.job.user != self._user or not (life.launches or self._model.exclusive):
                continue  # not considered before it has run
            number = number_of(life.job.spec.name)
            if life.end_us is not None or number in self._cancelled:
                continue
            evaluations = done_us(life, now) // self._model.evaluation_us
            if evaluations:
                self.explored_us.setdefault(number, now)
            predicted = self._configurations[number].predicted_accuracy(evaluations) if evaluations else 0.0
            yield _Member(number, state.jobs.rows[job_id], evaluations, predicted)

    def _is_known(self, life: Life, now: Micros) -> bool:
        return done_us(life, now) >= self._model.found_after * life.job.work_us

    def _prioritize(self, state: State, members: list[_Member]) -> Iterator[Event]:
        new = [one for one in members if not one.evaluations]
        judged = sorted((one for one in members if one.evaluations), key=lambda one: (-one.predicted, one.number))
        best, others = judged[: self._model.exclusive], judged[self._model.exclusive :]
        room = max(self._model.live - len(best) - len(new), 0) if self._model.live else len(others)
        gone = {one.job.id for one in others[room:]}
        apart: set[int] = set()
        for one in best:
            if one.job.id not in apart and one.job.state is JobState.RUNNING:
                if not one.job.priority:
                    self.promotions += 1
                    yield UpdateRequested(one.job.id, priority=1)
                apart |= {one.job.id, *(mates := _mates(state, one.job))}
                gone |= mates
        first = {one.job.id for one in best} - gone
        for one in [*best, *others, *new]:
            job = one.job
            if job.priority and job.id not in first:
                yield UpdateRequested(job.id, priority=0)
            if job.id in gone and job.state in RUNS and not job.suspend_requested:
                yield SuspendRequested(job.id)
            elif job.id not in gone and job.state is JobState.SUSPENDED:
                yield ResumeRequested(job.id)


def _mates(state: State, job: Job) -> set[int]:
    """The jobs that share the devices of a running one."""
    groups = {run.group for run in state.runs_of(job.id) if run.group}
    return {key.job_id for number in groups for key in state.share_groups.rows[number].members()} - {job.id}


def done_us(life: Life, now: Micros) -> Micros:
    """The work that a job which has not ended has done."""
    launch = life.launches[-1] if life.launches else None
    current = launch is not None and launch.ended_us is None and launch.pace is not None
    return life.done_us + (launch.pace.done_us(now) if current else 0)  # type: ignore[union-attr]


class Searches:
    """Searches, and other users' jobs, which are cancelled once all searches have ended."""

    def __init__(self, model: GandivaShared, seed: int) -> None:
        self.each = [
            Search(one, seed + place, gandiva_shared.searching(model, place), model.begins_us)
            for place, one in enumerate(model.searches)
        ]
        self._arrivals: list[Arrivals] = [Timed(gandiva_shared.jobs_of_others(model, seed)), *self.each]

    def _is_over(self) -> bool:
        return all(search.found_us is not None for search in self.each)

    def next_us(self, now: Micros, load: Load) -> Micros | None:
        times = [] if self._is_over() else [one.next_us(now, load) for one in self._arrivals]
        return min((time for time in times if time is not None), default=None)

    def take(self, now: Micros, load: Load) -> Sequence[SimJob]:
        return [] if self._is_over() else [job for one in self._arrivals for job in one.take(now, load)]

    def looks_us(self) -> Micros | None:
        return min((time for search in self.each if (time := search.looks_us()) is not None), default=None)

    def acts(self, state: State, lives: Mapping[int, Life], now: Micros) -> Iterator[Event]:
        for search in self.each:
            if (due := search.looks_us()) is not None and due <= now:
                yield from search.acts(state, lives, now)
        if self._is_over():
            left = (job_id for job_id, life in lives.items() if life.job.vc == gandiva_shared.OTHERS and life.end_us is None)
            yield from map(CancelRequested, left)


def searching_in(workload: BaseModel, seed: int) -> Search | Searches | None:
    """The searches in this workload; None if it has none."""
    if isinstance(workload, GandivaSearch):
        return Search(workload, seed)
    return Searches(workload, seed) if isinstance(workload, GandivaShared) else None


def numbers(searching: Search | Searches) -> Iterator[tuple[str, float]]:
    """Metrics of searches that have ended. If there are several, names include their numbers."""
    for prefix, search in _named_searches(searching):
        if search.found_us is not None:
            yield f"{prefix}.found_min", (search.found_us - search.begins_us) / (60 * SECOND)
        yield f"{prefix}.explored", len(search.explored_us)
        yield f"{prefix}.promotions", search.promotions


def curves(searching: Search | Searches, points: int) -> dict[str, list[float]]:
    """Curves over the time until the right configuration is known."""
    found = {}
    for prefix, search in _named_searches(searching):
        if search.found_us is not None:
            at, begin = sorted(search.explored_us.values()), search.begins_us
            took = search.found_us - begin
            found[f"{prefix}.explored"] = [float(bisect_right(at, begin + took * (i + 1) // points)) for i in range(points)]
    return found


def _named_searches(searching: Search | Searches) -> Iterator[tuple[str, Search]]:
    if isinstance(searching, Search):
        yield "search", searching
    else:
        yield from ((f"search.{number}", search) for number, search in enumerate(searching.each, 1))
