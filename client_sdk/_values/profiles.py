"""How a job runs while nobody else executes on its devices."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was measured of a job while nobody else executed on its devices."""

    mini_batch_time: timedelta
    """Of one mini-batch. A step of the training, if it counts its steps."""
    best_mini_batch_time: timedelta
    """The shortest that was measured. If the present one is much longer, jobs beside it on its server slow it down."""
    memory_mib: int = 0
    """The most memory that it used of one device; 0: unknown."""
    utilization_ppm: int | None = None
    """Of its devices, in millionths; None: unknown."""
    devices: int = 0
    """How many devices it had when it was measured, all tasks together."""
    model: str = ""
    """Of these devices."""
