"""How long parking, resuming and moving takes a job, by what it has in the memory of its devices."""

from typing import NamedTuple

from scheduler_service.core.model.values import Micros
from scheduler_service.sim.sharing.kinds import Kind


class Switching(NamedTuple):
    """Fixed times, and rates of copying in microseconds for each GiB. With the defaults parking and resuming takes no time."""

    park_us: Micros = 0
    resume_us: Micros = 0
    copy_us: int = 0
    """Between a device and its host."""
    warm_us: Micros = 0
    """Of a migration: until the destination is warm. The job goes on meanwhile."""
    save_us: Micros = 0
    """Of a migration: a checkpoint, beside what copying it takes."""
    transfer_us: int = 0
    """Of a migration: for each GiB, from node to node."""
    start_us: Micros = 0
    """Of a migration: from the transferred checkpoint to the first mini-batch."""

    def parks(self, kind: Kind | None) -> Micros:
        return self.park_us + _copied(kind, self.copy_us)

    def resumes(self, kind: Kind | None) -> Micros:
        return self.resume_us + _copied(kind, self.copy_us)

    def migrates(self, kind: Kind | None) -> Micros:
        """For how long the job makes no progress. One copy of the model is saved and moved, however many devices the job has
        (Gandiva, Figure 12)."""
        copied = _copied(kind, self.copy_us)
        return self.save_us + copied + _copied(kind, self.transfer_us) + self.start_us + copied


AT_ONCE = Switching()


def _copied(kind: Kind | None, per_gib: int) -> Micros:
    return 0 if kind is None else kind.boundary_mib * per_gib // 1024
