"""The jobs of the users of a simulated cluster, and their arrivals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.values import Micros, Vector, add


class SimJob(NamedTuple):
    """A job and its run time, which no scheduler knows. It has no array: elements of arrays are separate jobs here."""

    spec: JobSpec
    work_us: Micros
    """Its total run time if nothing disturbs it."""
    submit_us: Micros = 0
    """Time since the beginning of the simulation."""
    user: str = "user"
    vc: str = ""
    """Its virtual cluster; "" if the site has none."""
    times_us: tuple[Micros, ...] = ()
    """Its total run time in each of its configurations, by their numbers; empty: `work_us` in any. The first one is `work_us`:
    work is measured by its time in configuration 0."""
    samples_us: tuple[Micros, ...] = ()
    """Its total run time in each of its configurations as a sample measures it; empty: it counts no steps."""
    kind: str = ""
    """The kind of work, which determines its speed on shared devices (`sharing.kinds`); empty: unknown. `work_us` is then its
    time on the reference device, with its own number of devices, next to each other and alone."""

    def takes_us(self, configuration: int, work_us: Micros) -> Micros:
        """The time that this configuration takes for some work. The work done in that time is exactly this."""
        if not self.times_us:
            return work_us
        return -(-work_us * self.times_us[configuration] // self.work_us)

    def does_us(self, configuration: int, time_us: Micros) -> Micros:
        """The work that this configuration does in a time."""
        if not self.times_us:
            return time_us
        return time_us * self.work_us // self.times_us[configuration]


@dataclass(slots=True)
class Load:
    """The demand of all jobs that were submitted and have not ended, running or not, and the capacity."""

    asked: Vector
    capacity: Vector
    _whole: tuple[tuple[int, int], ...] = field(init=False)
    """The index and amount of each resource that the cluster has."""

    def __post_init__(self) -> None:
        self._whole = tuple((i, amount) for i, amount in enumerate(self.capacity) if amount)

    def mean(self) -> float:
        """The mean over the resources of asked / capacity; resources that the cluster lacks do not count."""
        asked = self.asked
        return sum([asked[i] / amount for i, amount in self._whole]) / len(self._whole)


class Arrivals(Protocol):
    """Jobs in the order of arrival."""

    def next_us(self, now: Micros, load: Load) -> Micros | None:
        """When the next job comes if nothing else happens before, not before `now`; None if no job comes."""

    def take(self, now: Micros, load: Load) -> Sequence[SimJob]:
        """The jobs that have come by `now`."""


class ClosedLoop:
    """The next job comes whenever the load is below a target (FitGpp, section 4.1: a load of 2.0 under FIFO)."""

    def __init__(self, jobs: Iterable[SimJob], target: float = 2.0) -> None:
        self._jobs = iter(jobs)
        self._next: SimJob | None = next(self._jobs, None)
        self._target = target

    def drop_rest(self) -> int:
        """Count the jobs that have not come, and drop them."""
        left = sum(1 for _ in self._jobs) + (self._next is not None)
        self._next = None
        return left

    def next_us(self, now: Micros, load: Load) -> Micros | None:
        return now if self._next is not None and load.mean() < self._target else None

    def take(self, now: Micros, load: Load) -> Sequence[SimJob]:
        come: list[SimJob] = []
        ahead = Load(load.asked, load.capacity)
        while self._next is not None and ahead.mean() < self._target:
            spec, work_us, _, user, vc, times_us, samples_us, kind = self._next
            come.append(SimJob(spec, work_us, now, user, vc, times_us, samples_us, kind))
            ahead.asked = add(ahead.asked, spec.demand)
            self._next = next(self._jobs, None)
        return come
