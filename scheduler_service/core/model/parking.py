"""Parks in a run's row: whether it is parked, where it resumes, and how long the phases of its operations took."""

from typing import NamedTuple

from scheduler_service.core.model.enums import OperationKind, OperationPhase
from scheduler_service.core.model.values import Micros

KEPT = 16
"""Number of last phases that the row of a run keeps."""


class Parking(NamedTuple):
    """Park state of a run that was told to park at least once."""

    times: int = 1
    """How many times it was told to park."""
    underway: bool = True
    """True from the order to park until the run executes again or has ended. Meanwhile it is charged host memory for what it
    has on its devices, and on a site with cells all host resources that it holds belong to no device."""
    devices: tuple[int, ...] = ()
    """While it is parked: the devices that it had, on which it resumes. Empty: it holds its devices."""
    since_us: Micros | None = None
    """When it was parked; None: it is not parked."""
    before_us: Micros = 0
    """Total time that it was parked before."""
    rung: str = ""
    """How its node parked it, such as "cooperative" or "driver"; empty: it did not, or not yet."""
    residue_mib: int = 0
    """Memory that the parked run leaves on each of its devices."""
    limit_us: Micros = 0
    """Time within which its node is to park it, counted from the order."""
    saves: bool = False
    """While it is parked: it can save its checkpoint and exit, so that it can resume elsewhere."""


class PhaseTime(NamedTuple):
    """A finished phase of an operation, as shown to users."""

    kind: OperationKind
    phase: OperationPhase
    began_us: Micros
    took_us: Micros
    text: str = ""
    """Measurements, or why the phase was given up."""
