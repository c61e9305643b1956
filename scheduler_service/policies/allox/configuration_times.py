"""The ways in which jobs can run: their configurations, what each needs, and how long it takes.

Most jobs of a long queue are the same at every look, so what follows from a job's row is kept.
"""

from typing import NamedTuple

from scheduler_service.core.model import Job, JobSpec
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest
from scheduler_service.core.model.values import SECOND, Micros, Vector
from scheduler_service.core.operations.estimators import is_impossible
from scheduler_service.core.state.resources.suitable_nodes import Asked, node_requirements
from scheduler_service.policies.allox.matching.problem import NEVER
from scheduler_service.policies.remaining_time import work_left

_KEPT = 20_000
"""Jobs that are kept in addition to twice the live ones, before all are forgotten."""


class Way(NamedTuple):
    """One configuration of a queued job."""

    job: Job
    """The job as if it had this configuration alone."""
    time_us: Micros
    """How long the job would run, counted from the end of its last launch; at least a second."""


def ways(job: Job, unknown_us: Micros) -> list[Way]:
    """One for each configuration, in the user's order. One without an estimate is taken to run for `unknown_us` in all."""
    return [Way(one, time) for one, time in zip(job.in_each_configuration(), times(job, unknown_us), strict=True)]


def times(job: Job, unknown_us: Micros) -> list[Micros]:
    """How long each of these ways takes; NEVER in one that is impossible."""
    return [_time(job, number, unknown_us) for number in range(len(job.spec.alternatives) + 1)]


def _time(job: Job, configuration: int, unknown_us: Micros) -> Micros:
    if is_impossible(job, configuration):
        return NEVER
    left = work_left(job, configuration)
    return max(unknown_us - job.ran_us if left is None else left, SECOND)


class Need(NamedTuple):
    """Requirements that decide on which slots a configuration can run."""

    asks: Asked | None
    tasks: tuple[Vector, ...]
    cells: CellRequest


class Ways(NamedTuple):
    """A job's configurations, in the user's order."""

    job: Job
    needs: tuple[int, ...]
    """Their needs, as numbers in `Known.needs`."""
    times_us: tuple[Micros, ...]
    """How long the job would run in each, counted from the end of its last launch; at least a second."""

    @property
    def fastest(self) -> int:
        return self.times_us.index(min(self.times_us))

    def discount(self, configuration: int) -> float:
        """The factor by which the value of a job falls in this configuration (section 3.3.2)."""
        return min(self.times_us) / self.times_us[configuration]


class Known:
    """Configurations of jobs. They follow from the jobs' rows alone, and so may be forgotten at any time."""

    def __init__(self, unknown_us: Micros) -> None:
        """A configuration without an estimate is taken to run for `unknown_us` in all."""
        self.needs: list[Need] = []
        self.specs: list[JobSpec] = []
        """For each need, by its number, the spec of some configuration that has it."""
        self._unknown_us = unknown_us
        self._numbers: dict[Need, int] = {}
        self._ways: dict[int, Ways] = {}

    def ways_of(self, job: Job) -> Ways:
        known = self._ways.get(job.id)
        if known is None or known.job is not job:
            each = ways(job, self._unknown_us)
            needs = tuple(self.need(way.job.spec) for way in each)
            known = self._ways[job.id] = Ways(job, needs, tuple(way.time_us for way in each))
        return known

    def forget(self, live: int) -> None:
        """Forget everything if most of it is about jobs that have ended. Needs get other numbers from then on."""
        if len(self._ways) > 2 * live + _KEPT:
            for part in (self.needs, self.specs, self._numbers, self._ways):
                part.clear()

    def need(self, spec: JobSpec) -> int:
        """Return the number of the need of a spec without alternatives."""
        need = Need(node_requirements(spec), spec.tasks(), spec.cells)
        number = self._numbers.setdefault(need, len(self.needs))
        if number == len(self.needs):
            self.needs.append(need)
            self.specs.append(spec)
        return number
