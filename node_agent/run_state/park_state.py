"""The state of a run's parks, as the spool keeps it, and the result of a request to suspend or resume a process."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Rung(StrEnum):
    """How a run is parked, in the order in which the agent tries."""

    COOPERATIVE = "cooperative"
    """The processes move their device memory themselves, and are then stopped."""
    DRIVER = "driver"
    """The driver's checkpoint."""
    STOPPED = "stopped"
    """Nothing is on a device, and the processes are only stopped."""


class ParkStage(IntEnum):
    EXECUTES = 0
    PARKING = 1
    """A rung is being tried. Some processes may be stopped, and some of the memory moved."""
    PARKED = 2
    RESUMING = 3


@dataclass(frozen=True, slots=True)
class ParkState:
    """The agent's record of how it has parked the processes of a run, with statistics. It is written before anything is done,
    so that another agent can resume from it. Times are seconds of the monotonic clock."""

    stage: ParkStage = ParkStage.EXECUTES
    rung: Rung | None = None
    """The rung that is being tried, or was used last."""
    driver_pids: tuple[int, ...] = ()
    """Processes that the driver may have suspended."""
    changed: float = 0.0
    """When the stage changed last."""
    bytes: int = 0
    """Bytes that the last park moved to host memory."""
    most_bytes: int = 0
    """The most bytes that any park moved: programs keep the host memory for the next one."""
    residue_bytes: int = 0
    saves: bool = False
    """All of its processes can save their checkpoint while parked."""
    switches: int = 0
    parked_seconds: float = 0.0
    switching_seconds: float = 0.0
    """Time in which it neither executed nor was parked."""
    wait_seconds: float = 0.0
    """Time from a request to park until the run no longer executes. The longest of the last few: it depends on when the
    mini-batch began, and turns must suffice for nearly all."""
    park_seconds: float = 0.0
    """Time from then until it is parked, as the mean of the last few."""
    resume_seconds: float = 0.0
    """Time to resume, as the mean of the last few."""
    resumes: int = 0
    outlasted_seconds: float = 0.0
    """The longest time within which a park did not end, since the last one that succeeded."""
    stops: int = 0
    """Times it was stopped in the middle of a step, whose duration is then no measurement."""


NEVER_PARKED = ParkState()


class Verdict(StrEnum):
    """The result; the caller decides what to do."""

    DONE = "done"
    REFUSED = "refused"
    """The process is as it was before the request."""
    LOST = "lost"
    """It is unknown whether the process can ever continue. Kill it, and restart the job from its last checkpoint."""
