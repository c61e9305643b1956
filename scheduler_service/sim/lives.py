"""What became of each simulated job: the history that every figure is made of."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from scheduler_service.core.values import Micros
from scheduler_service.sim.jobs import SimJob


@dataclass(slots=True)
class Launch:
    """One run of a job, of all its tasks. Times count from the beginning of the simulation."""

    nodes: tuple[int, ...]
    """Where its tasks are, by rank; ids count from 1."""
    placed_us: Micros
    """From here on its devices are taken."""
    began_us: Micros | None = None
    """When its processes were there; None: it was told to leave, or its node was lost, before."""
    signalled_us: Micros | None = None
    """When it was told to leave; it does no work from here on."""
    ended_us: Micros | None = None
    """When it had left, or was lost."""


@dataclass(slots=True)
class Life:
    """A job from its submit to its end. Times count from the beginning of the simulation."""

    job: SimJob
    id: int
    submit_us: Micros
    end_us: Micros | None = None
    done_us: Micros = 0
    """What it had done of its work, and not lost again, when its last run ended."""
    lost_us: Micros = 0
    """Work that was done and had to be done again."""
    launches: list[Launch] = field(default_factory=list)

    def wait_us(self) -> Micros:
        """Its time in the cluster, less its work: in queues, and also in grace periods, which do no work (FitGpp, 4.1)."""
        assert self.end_us is not None  # it is asked of jobs that are over
        return self.end_us - self.submit_us - self.job.work_us

    def slowdown(self) -> float:
        """1 + wait / execution (FitGpp, section 4.1)."""
        return 1 + self.wait_us() / self.job.work_us

    def start_us(self) -> Micros | None:
        """When its first run began."""
        return next((launch.began_us for launch in self.launches if launch.began_us is not None), None)

    def intervals_us(self) -> Iterator[Micros]:
        """From each signal to the beginning of the next run, the grace period included (FitGpp, table 2)."""
        since: Micros | None = None
        for launch in self.launches:
            if launch.began_us is not None and since is not None:
                yield launch.began_us - since
                since = None
            if launch.signalled_us is not None and since is None:
                since = launch.signalled_us
