"""What a run's row says of parks: whether it is parked, where it resumes, and what the phases of its operations took."""

from typing import NamedTuple

from scheduler_service.core.model.enums import OperationKind, OperationPhase
from scheduler_service.core.model.values import Micros

KEPT = 16
"""So many of the last phases are kept in the row of a run."""


class Parking(NamedTuple):
    """Of a run that was told to park at least once."""

    times: int = 1
    """How often it was told to."""
    underway: bool = True
    """From the order to park until the run executes again, or has ended. In that time it is charged with host memory for what
    it has on its devices, and where there are cells all that it holds of the host goes with no device."""
    devices: tuple[int, ...] = ()
    """While it is parked: the devices that it had, and on which it resumes. Empty: it holds its devices."""
    since_us: Micros | None = None
    """While it is parked: since when."""
    before_us: Micros = 0
    """How long it was parked before that, in all."""
    rung: str = ""
    """How its node has parked it, such as "cooperative" or "driver". Empty: it has not, or not yet."""
    residue_mib: int = 0
    """What the parked run leaves on each of its devices."""
    limit_us: Micros = 0
    """In which its node is to park it, from the order on."""
    saves: bool = False
    """While it is parked: it can save its checkpoint and exit, so that it can go on elsewhere."""


class PhaseTime(NamedTuple):
    """A phase of an operation that is over, for users."""

    kind: OperationKind
    phase: OperationPhase
    began_us: Micros
    took_us: Micros
    text: str = ""
    """What was measured, or why the phase was given up."""
