"""What introspection knows of running jobs (Gandiva, section 4.1), and what their turns cost."""

from typing import NamedTuple

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros

PPM = 1_000_000


class Profile(NamedTuple):
    """How a job runs while nobody else executes on its devices. Kept with the job."""

    mini_batch_us: Micros
    memory_mib: int = 0
    """The most memory that it used of one device; 0: unknown."""
    utilisation_ppm: int = -1
    """Of its devices; -1: unknown."""
    devices: int = 0
    """How many devices it had, all tasks together, when it was measured."""
    model: str = ""
    """Of these devices."""
    best_us: Micros = 0
    """The shortest mini-batch time that was measured so. A longer one may be due to neighbours on the server."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The latest measurement of a run. It is not durable: a new leader hears of the run again within a minute."""

    at_us: Micros
    mini_batch_us: Micros
    count: int
    """Mini-batches behind this time."""
    confidence_ppm: int
    memory_mib: int
    """The most memory that the run used of one device, of all measurements under the present share plan; 0: unknown."""
    utilisation_ppm: int
    """-1: unknown."""
    plan: tuple[int, int]
    """The share group of the run and its generation when the run was measured; (0, 0): the run was in none."""
    since_us: Micros
    """From when on the run is known to have had this plan."""
    settled: bool
    """All mini-batches behind the time were done under this plan."""


class Switching(NamedTuple):
    """What it takes to park a run at the end of its turn, and to resume it. It is not durable: a new leader hears of it again
    from the agents."""

    wait_us: Micros = 0
    """From the end of the turn until the run executes no more, the longest of the last few times: a program parks between two
    mini-batches."""
    park_us: Micros = 0
    """From then until its devices are free, and"""
    resume_us: Micros = 0
    """until it executes again: means of the last few times."""
    outlasted_us: Micros = 0
    """A park takes longer: it did not end within so much time, since the last one that succeeded. 0: all did, or were
    refused."""

    @property
    def whole_park_us(self) -> Micros:
        """From the end of the turn until the devices are free, at least."""
        return max(self.wait_us + self.park_us, self.outlasted_us)
