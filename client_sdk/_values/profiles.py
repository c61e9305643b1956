"""The profile of a job that runs alone on its devices."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measurements of a job, taken while no other job executed on its devices."""

    mini_batch_time: timedelta
    """The time of one mini-batch, which is a training step if the job counts its steps."""
    best_mini_batch_time: timedelta
    """The shortest mini-batch time measured. If the current one is much longer, other jobs on the same server slow it down."""
    memory_mib: int = 0
    """The most memory that it used on one device; 0: unknown."""
    utilization_ppm: int | None = None
    """Utilization of its devices, in millionths; None: unknown."""
    devices: int = 0
    """The number of devices that all of its tasks together had when it was measured."""
    model: str = ""
    """The model of these devices."""
