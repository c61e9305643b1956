"""The treatment of shared devices in a simulation, as the agents use it; and the time that parking, resuming, saving and moving
a job takes, by its amount of data in the memory of its devices."""

from dataclasses import dataclass
from typing import NamedTuple

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.sim.sharing.kinds import Kind
from scheduler_service.sim.sharing.model import Proportional, Rates


class Switching(NamedTuple):
    """Fixed times, and rates of copying in microseconds for each GiB. With the defaults nothing takes time."""

    park_us: Micros = 0
    resume_us: Micros = 0
    copy_us: int = 0
    """Copying between a device and its host."""
    save_us: Micros = 0
    """Saving a checkpoint, in addition to copying."""
    transfer_us: int = 0
    """To move a checkpoint to another node, for each GiB."""
    start_us: Micros = 0
    """From the checkpoint to the first mini-batch, in addition to copying."""

    def parks(self, kind: Kind | None) -> Micros:
        return self.park_us + _copy_time(kind, self.copy_us)

    def resumes(self, kind: Kind | None) -> Micros:
        return self.resume_us + _copy_time(kind, self.copy_us)

    def saves(self, kind: Kind | None) -> Micros:
        """One copy of the model is saved and moved, however many devices the job has (Gandiva, Figure 12)."""
        return self.save_us + _copy_time(kind, self.copy_us)

    def goes_on(self, kind: Kind | None, moved: bool) -> Micros:
        """Time to resume from a checkpoint. `moved`: the last launch was on another node."""
        return self.start_us + _copy_time(kind, self.copy_us) + (_copy_time(kind, self.transfer_us) if moved else 0)


AT_ONCE = Switching()


def _copy_time(kind: Kind | None, per_gib: int) -> Micros:
    return 0 if kind is None else kind.boundary_mib * per_gib // 1024


MINUTE_US = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Setup:
    rates: Rates
    switching: Switching = AT_ONCE
    exact: bool = False
    """Each slice begins and ends at its time; False: a run executes all the time at the mean rate of a cycle, which gives the
    same work at the end of each cycle, with fewer events."""
    measures_every_us: Micros | None = None
    """How often nodes report the mini-batch time of each run, while the policy asks for it; None: never."""
    noise: float = 0.0
    """Standard deviation of measured times, relative to the true ones."""


PLAIN = Setup(Proportional())
"""The setup of a simulation whose jobs have no kinds."""
