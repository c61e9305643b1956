"""How long what a simulated node does takes."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from scheduler_service.core.model.values import Micros

Delay = Callable[[Random], Micros]


def none(_rng: Random) -> Micros:
    return 0


class Delays(NamedTuple):
    """How long what a node does takes. The defaults are the FitGpp paper's: a run takes all of its grace period to leave, and
    everything else takes no time."""

    start: Delay = none
    """From the order to the process; of a gang's task: until it is prepared."""
    resume: Delay = none
    """Until a run that goes on from a checkpoint works again."""
    checkpoint: Delay | None = None
    """From the signal until the run has saved its work and left. One that takes longer than its grace period is killed at the
    end of that, and has saved nothing. None: it takes all of that, and is done."""
    end: Delay = none
    """From the end of its work until the scheduler hears that it is over."""
    warm: Delay = none
    """From the order to be ready for a job that still works elsewhere, until it is reported."""
    transfer: Delay = none
    """From the order to begin at the destination of a migration until the checkpoint is there and the process has begun."""
    park: Delay = none
    """From the order to park until the run is parked. It works until then."""
    unpark: Delay = none
    """From the order to go on until a parked run works again."""
    checkpoint_every_us: Micros | None = None
    """How much work lies between the checkpoints that a job makes by itself, which take no time: what it has done since the
    last one is lost where its node dies, or where it is killed. None: it makes none, and begins again where that run began."""


AT_ONCE = Delays()
