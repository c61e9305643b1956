"""What the users of a simulated cluster want, and when: arrivals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from scheduler_service.core.model import JobSpec
from scheduler_service.core.model.values import Micros, Vector, add


class SimJob(NamedTuple):
    """A job and what no scheduler knows of it: how long it runs. No array: its elements are jobs of their own here."""

    spec: JobSpec
    work_us: Micros
    """How long it runs in all, where nothing disturbs it."""
    submit_us: Micros = 0
    """Counted from the beginning of the simulation."""
    user: str = "user"
    vc: str = ""
    """The virtual cluster that it belongs to; "": the site has none."""
    times_us: tuple[Micros, ...] = ()
    """How long it runs in all in each of its configurations, by their numbers; empty: `work_us` in any. The first one is
    `work_us`: work is counted in the time that it takes in configuration 0."""
    samples_us: tuple[Micros, ...] = ()
    """How long it runs in all in each of its configurations as a sample measures it; empty: it counts no steps."""
    kind: str = ""
    """What decides how fast it runs on shared devices (`sharing.kinds`); empty: unknown. `work_us` is then the time that it
    takes on the reference device, with its own number of devices, next to each other and alone."""

    def takes_us(self, configuration: int, work_us: Micros) -> Micros:
        """How long this configuration takes for so much work. What is done in that time is the work exactly."""
        if not self.times_us:
            return work_us
        return -(-work_us * self.times_us[configuration] // self.work_us)

    def does_us(self, configuration: int, time_us: Micros) -> Micros:
        """How much work this configuration does in that time."""
        if not self.times_us:
            return time_us
        return time_us * self.work_us // self.times_us[configuration]


@dataclass(slots=True)
class Load:
    """What all jobs that are submitted and not over ask for, running or not, and what there is."""

    asked: Vector
    capacity: Vector
    _whole: tuple[tuple[int, int], ...] = field(init=False)
    """The resources of which there is something, and how much."""

    def __post_init__(self) -> None:
        self._whole = tuple((i, amount) for i, amount in enumerate(self.capacity) if amount)

    def mean(self) -> float:
        """The mean over the resources of asked / capacity; one of which there is nothing does not count."""
        asked = self.asked
        return sum([asked[i] / amount for i, amount in self._whole]) / len(self._whole)


class Arrivals(Protocol):
    """Jobs in the order in which they come."""

    def next_us(self, now: Micros, load: Load) -> Micros | None:
        """When the next job comes if nothing else happens before, not before `now`; None: none does."""

    def take(self, now: Micros, load: Load) -> Sequence[SimJob]:
        """Those that have come by `now`."""


class ClosedLoop:
    """The next job comes whenever the load is below a target (FitGpp, section 4.1: a load of 2.0 under FIFO)."""

    def __init__(self, jobs: Iterable[SimJob], target: float = 2.0) -> None:
        self._jobs = iter(jobs)
        self._next: SimJob | None = next(self._jobs, None)
        self._target = target

    def left(self) -> int:
        """How many have not come. None does any more, now that they are counted."""
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
