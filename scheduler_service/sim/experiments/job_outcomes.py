"""What became of each simulated job: the history that every figure is made of."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from scheduler_service.core.model import StopReason
from scheduler_service.core.model.values import Micros, Vector
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.sharing.pace import Pace


@dataclass(slots=True)
class Launch:
    """One run of a job, of all its tasks. Times count from the beginning of the simulation."""

    nodes: tuple[int, ...]
    """Where its tasks are, by rank; ids count from 1."""
    placed_us: Micros
    """From here on its devices are taken."""
    began_us: Micros | None = None
    """When all of its processes were there; None: it was told to leave, or its node was lost, before."""
    signalled_us: Micros | None = None
    """When it was told to leave; it does no work from here on."""
    ended_us: Micros | None = None
    """When its last task had left, or was lost."""
    works_us: Micros | None = None
    """From here on it did its work, unless it had left by then; between `began_us` and this it went back to its checkpoint."""
    why: StopReason | None = None
    """For what it was told to leave, where that is known: only PREEMPTED makes room for a trial."""
    guaranteed_us: Micros | None = None
    """From here on it held cells of its virtual cluster, until it left; None: it never did, or not to its end."""
    guaranteed_before: tuple[Micros, ...] = ()
    """From when to when, in pairs, it held such cells and lost its guarantee again."""
    lost_us: Micros | None = None
    """When the first of its nodes died; it does no work from here on. Where it was placed on a dead one: at once."""
    configuration: int = 0
    """Of the job, by its number, in which it ran."""
    parked: tuple[Micros, ...] = ()
    """From when to when, in pairs, it did no work because it was parked."""
    pace: Pace | None = None
    """How fast it works; None: at the rate 1 from `works_us` on."""
    park_delays: tuple[Micros, ...] = ()
    """From each order to park until it was parked."""
    unpark_delays: tuple[Micros, ...] = ()
    """From each order to go on until it worked again."""

    def gains_guarantee(self, now: Micros) -> None:
        before = self.guaranteed_before
        if before and before[-1] == now:  # it was without for no time
            self.guaranteed_us, self.guaranteed_before = before[-2], before[:-2]
        else:
            self.guaranteed_us = now

    def loses_guarantee(self, now: Micros) -> None:
        if self.guaranteed_us is not None and self.guaranteed_us < now:
            self.guaranteed_before += (self.guaranteed_us, now)
        self.guaranteed_us = None

    def parked_us(self) -> Micros:
        """For how long it did no work because it was parked."""
        return sum(self.parked[1::2]) - sum(self.parked[::2])

    def released(self) -> Iterator[tuple[Micros, Micros]]:
        """From when to when others could have its devices, because it was parked: it has them again while it goes on."""
        for begin, end, takes in zip_longest(self.parked[::2], self.parked[1::2], self.unpark_delays, fillvalue=0):
            yield begin, max(end - takes, begin)

    def worked_us(self) -> Micros:
        """For how long it did its work, counted in the time that it takes at the rate 1; it is over."""
        if self.works_us is None or self.ended_us is None:
            return 0
        until = self.ended_us
        if self.signalled_us is not None and self.signalled_us < until:
            until = self.signalled_us
        if self.lost_us is not None and self.lost_us < until:
            until = self.lost_us
        if self.pace is not None:
            return self.pace.done_us(until)
        return max(until - self.works_us - self.parked_us(), 0)


@dataclass(slots=True)
class Life:
    """A job from its submit to its end. Times count from the beginning of the simulation."""

    job: SimJob
    id: int
    submit_us: Micros
    end_us: Micros | None = None
    done_us: Micros = 0
    """What it had done of its work, and not lost again, when its last run ended. Of a job that is over this is all of it,
    unless its time limit cut it off. Like all work, it is counted in the time that it takes in configuration 0."""
    lost_us: Micros = 0
    """Work that was done and had to be done again."""
    launches: list[Launch] = field(default_factory=list)

    def left(self, launch: Launch, saved: bool, checkpoint_every_us: Micros | None) -> None:
        """The launch is over. What it did counts to its end if it was `saved`, else to the last checkpoint that the job made by
        itself; where it makes none, to where the run began. At its time limit it counts to its end in any case: nobody goes on
        from there, so nothing is done again."""
        saved = saved or (launch.why is StopReason.TIME_LIMIT and launch.lost_us is None)
        worked = min(self.job.does_us(launch.configuration, launch.worked_us()), self.job.work_us - self.done_us)
        kept = worked if saved else worked - worked % checkpoint_every_us if checkpoint_every_us else 0
        self.done_us += kept
        self.lost_us += worked - kept

    def wait_us(self) -> Micros:
        """Its time in the cluster, less its work: in queues, in grace periods, which do no work (FitGpp, 4.1), and for what had
        to be done again."""
        assert self.end_us is not None  # it is asked of jobs that are over
        return self.end_us - self.submit_us - self.done_us

    def slowdown(self) -> float:
        """1 + wait / execution (FitGpp, section 4.1); of a job that its time limit cut off, what it did is its execution."""
        return 1 + self.wait_us() / (self.done_us or self.job.work_us)

    def demand(self) -> Vector:
        """What it asks for in the configuration of its last launch; before the first one, in configuration 0."""
        spec = self.job.spec
        return spec.configured(self.launches[-1].configuration).demand if spec.alternatives and self.launches else spec.demand

    def start_us(self) -> Micros | None:
        """When its first run began."""
        return next((launch.began_us for launch in self.launches if launch.began_us is not None), None)
