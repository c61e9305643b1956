"""The outcome of each simulated job: the history that every figure is made of."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from scheduler_service.core.model import StopReason
from scheduler_service.core.model.values import Micros, Vector
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.sharing.pace import Pace


@dataclass(slots=True)
class Launch:
    """One run of a job with all of its tasks. Times count from the beginning of the simulation."""

    nodes: tuple[int, ...]
    """Nodes of its tasks, by rank; ids count from 1."""
    placed_us: Micros
    """The time from which it holds its devices."""
    began_us: Micros | None = None
    """When all of its processes had started; None: it was told to stop, or its node was lost, before."""
    signalled_us: Micros | None = None
    """When it was told to stop; it does no work from here on."""
    ended_us: Micros | None = None
    """When its last task had exited or was lost."""
    works_us: Micros | None = None
    """When it began its work, unless it had ended by then; from `began_us` until then it restored its checkpoint."""
    why: StopReason | None = None
    """Why it was told to stop, if known: only PREEMPTED makes room for a trial."""
    guaranteed_us: Micros | None = None
    """The time from which it held cells of its virtual cluster until it ended; None: it never did, or not until its end."""
    guaranteed_before: tuple[Micros, ...] = ()
    """Earlier times, as pairs of begin and end, in which it held such cells until it lost its guarantee."""
    lost_us: Micros | None = None
    """When the first of its nodes died, or it was placed on a dead one; it does no work from here on."""
    configuration: int = 0
    """The number of the job's configuration in which it ran."""
    parked: tuple[Micros, ...] = ()
    """Times, as pairs of begin and end, in which it did no work because it was parked."""
    pace: Pace | None = None
    """How fast it works; None: at the rate 1 from `works_us` on."""
    park_delays: tuple[Micros, ...] = ()
    """Time from each order to park until it was parked."""
    unpark_delays: tuple[Micros, ...] = ()
    """Time from each order to resume until it worked again."""

    def gains_guarantee(self, now: Micros) -> None:
        before = self.guaranteed_before
        if before and before[-1] == now:  # it was without a guarantee for no time
            self.guaranteed_us, self.guaranteed_before = before[-2], before[:-2]
        else:
            self.guaranteed_us = now

    def loses_guarantee(self, now: Micros) -> None:
        if self.guaranteed_us is not None and self.guaranteed_us < now:
            self.guaranteed_before += (self.guaranteed_us, now)
        self.guaranteed_us = None

    def parked_us(self) -> Micros:
        """How long it did no work because it was parked."""
        return sum(self.parked[1::2]) - sum(self.parked[::2])

    def released_times(self) -> Iterator[tuple[Micros, Micros]]:
        """Times in which others could have its devices, because it was parked. It holds them again while it resumes."""
        for begin, end, takes in zip_longest(self.parked[::2], self.parked[1::2], self.unpark_delays, fillvalue=0):
            yield begin, max(end - takes, begin)

    def worked_us(self) -> Micros:
        """How long it did its work, in time at the rate 1; 0 if it has not ended."""
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
    """The work that it had done, and not lost again, when its last run ended. When the job has ended this is all of it, unless
    its time limit cut it off. Like all work, it is measured by its time in configuration 0."""
    lost_us: Micros = 0
    """Work that was done and had to be repeated."""
    launches: list[Launch] = field(default_factory=list)

    def account_for(self, launch: Launch, saved: bool, checkpoint_every_us: Micros | None) -> None:
        """Account for a launch that has ended. If it was `saved`, its work counts to its end; else to the job's last own
        checkpoint, or, without any, to where the run began. At its time limit it counts to its end in any case: no run
        continues from there, so no work is repeated."""
        saved = saved or (launch.why is StopReason.TIME_LIMIT and launch.lost_us is None)
        worked = min(self.job.does_us(launch.configuration, launch.worked_us()), self.job.work_us - self.done_us)
        kept = worked if saved else worked - worked % checkpoint_every_us if checkpoint_every_us else 0
        self.done_us += kept
        self.lost_us += worked - kept

    def wait_us(self) -> Micros:
        """Its time in the cluster, less its work: in queues, in grace periods (no work: FitGpp, 4.1), and for repeated work."""
        assert self.end_us is not None  # only jobs that have ended are asked for it
        return self.end_us - self.submit_us - self.done_us

    def slowdown(self) -> float:
        """1 + wait / execution (FitGpp, section 4.1). If a time limit cut the job off, execution is the work that it did."""
        return 1 + self.wait_us() / (self.done_us or self.job.work_us)

    def demand(self) -> Vector:
        """Its demand in the configuration of its last launch; before the first one, in configuration 0."""
        spec = self.job.spec
        return (
            spec.in_configuration(self.launches[-1].configuration).demand
            if spec.alternatives and self.launches
            else spec.demand
        )

    def start_us(self) -> Micros | None:
        """When its first run began."""
        return next((launch.began_us for launch in self.launches if launch.began_us is not None), None)
