"""What became of each simulated job: the history that every figure is made of."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler_service.core.values import Micros
from scheduler_service.sim.jobs import SimJob


@dataclass(slots=True)
class Life:
    """A job from its submit to its end. Times count from the beginning of the simulation."""

    job: SimJob
    id: int
    submit_us: Micros
    start_us: Micros | None = None
    """When its first run began."""
    end_us: Micros | None = None
    done_us: Micros = 0
    """What it had done of its work when its last run ended."""
    stops: list[Micros] = field(default_factory=list)
    """When it was signalled to leave."""
    returns: list[Micros] = field(default_factory=list)
    """When it ran again: one for each of its stops, but for the last, perhaps."""
    lost_us: Micros = 0
    """Work that was done and had to be done again."""

    def wait_us(self) -> Micros:
        """Its time in the cluster, less its work: in queues, and also in grace periods, which do no work (FitGpp, 4.1)."""
        assert self.end_us is not None  # it is asked of jobs that are over
        return self.end_us - self.submit_us - self.job.work_us

    def slowdown(self) -> float:
        """1 + wait / execution (FitGpp, section 4.1)."""
        return 1 + self.wait_us() / self.job.work_us

    def intervals_us(self) -> Iterable[Micros]:
        """From each signal to the next run, the grace period included (FitGpp, table 2)."""
        return (back - stop for stop, back in zip(self.stops, self.returns, strict=False))
