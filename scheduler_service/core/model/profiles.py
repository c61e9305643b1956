"""Measurements of running jobs by introspection (Gandiva, section 4.1), and the cost of their turns."""

from typing import NamedTuple

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros

PPM = 1_000_000


class Profile(NamedTuple):
    """How a job runs while no other job executes on its devices. Kept with the job."""

    mini_batch_us: Micros
    memory_mib: int = 0
    """Peak memory that it used on one device; 0: unknown."""
    utilisation_ppm: int = -1
    """Utilization of its devices; -1: unknown."""
    devices: int = 0
    """Number of devices of all its tasks when it was measured."""
    model: str = ""
    """Model of these devices."""
    best_us: Micros = 0
    """The shortest mini-batch time measured this way. A longer one may be due to neighbors on the server."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The latest measurement of a run. It is not durable: a new leader receives one again within a minute."""

    at_us: Micros
    mini_batch_us: Micros
    count: int
    """Mini-batches behind this time."""
    confidence_ppm: int
    memory_mib: int
    """Peak memory that the run used on one device, over all measurements under the current share plan; 0: unknown."""
    utilisation_ppm: int
    """-1: unknown."""
    plan: tuple[int, int]
    """The share group of the run and its generation when the run was measured; (0, 0): the run was in none."""
    since_us: Micros
    """Time since when the run is known to have had this plan."""
    settled: bool
    """All mini-batches behind the time were done under this plan."""


class Switching(NamedTuple):
    """Time to park a run at the end of its turn, and to resume it. Not durable: agents report it again to a new leader."""

    wait_us: Micros = 0
    """From the end of the turn until the run stops executing, the longest of the last few times: a program parks between two
    mini-batches."""
    park_us: Micros = 0
    """From then until its devices are free, mean of the last few times."""
    resume_us: Micros = 0
    """From the start of a resume until it executes again, mean of the last few times."""
    outlasted_us: Micros = 0
    """The longest time in which a park did not finish, since the last one that succeeded; 0: all finished or were refused."""

    @property
    def whole_park_us(self) -> Micros:
        """Minimum time from the end of the turn until the devices are free."""
        return max(self.wait_us + self.park_us, self.outlasted_us)
