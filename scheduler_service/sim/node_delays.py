"""The delays of a simulated node's actions."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from scheduler_service.core.model.values import Micros

Delay = Callable[[Random], Micros]


def none(_rng: Random) -> Micros:
    return 0


class Delays(NamedTuple):
    """How long a node's actions take. The defaults are the FitGpp paper's: a run uses all of its grace period to exit, and
    everything else takes no time."""

    start: Delay = none
    """From the order until the process has started; for a gang's task, until it is prepared."""
    resume: Delay = none
    """Until a run that resumes from a checkpoint works again."""
    checkpoint: Delay | None = None
    """From the signal until the run has saved its work and exited. A run that takes longer than its grace period is killed at
    the end of it, and has saved nothing. None: it uses the whole grace period, and saves."""
    end: Delay = none
    """From the end of its work until the scheduler learns of it."""
    warm: Delay = none
    """From the order to be ready for a job that still works elsewhere, until it is reported."""
    transfer: Delay = none
    """From the order to begin at the destination of a migration until the checkpoint has arrived and the process has begun."""
    park: Delay = none
    """From the order to park until the run is parked. It works until then."""
    unpark: Delay = none
    """From the order to resume until a parked run works again."""
    checkpoint_every_us: Micros | None = None
    """Work between the checkpoints that a job makes on its own, which take no time: the work since the last one is lost if its
    node dies, or if it is killed. None: it makes none, and a new run begins where that run began."""


AT_ONCE = Delays()
