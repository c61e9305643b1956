"""Events: what nodes measure of runs, as long as someone asks for it, and what runs say of themselves."""

from scheduler_service.core.model import RunKey
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros


@dataclass(frozen=True, slots=True)
class RunMeasured:
    """A node has read the step count of a run that is a sample. Sent only if it is newer than the last one."""

    node: str
    key: RunKey
    steps: int
    """Steps that the process of the run has done."""
    first_us: Micros
    """From the start of the process to the end of its first step."""
    elapsed_us: Micros
    """From the start of the process to the end of its last step."""
    total: int = 0
    """Steps of the whole job; 0: the program has not reported them."""
    spread_ppm: int = 0
    """The standard error of the step time, in millionths of it."""
    memory_mib: int = 0
    """Peak host memory of the run; 0: unknown."""


@dataclass(frozen=True, slots=True)
class GraceWanted:
    """A run has measured its saves and requests a longer grace period. Sent only if it is longer than the last one."""

    node: str
    key: RunKey
    grace_us: Micros


@dataclass(frozen=True, slots=True)
class MiniBatchMeasured:
    """A node has measured a run. Sent only while the policy asks for it, and at most once per `measured_us` for each run."""

    node: str
    key: RunKey
    mini_batch_us: Micros
    """Duration of one mini-batch while the run executes: time in which the run is parked does not count."""
    count: int
    """Mini-batches behind this time: the last ones that the run has done."""
    confidence_ppm: int
    memory_mib: int = 0
    """Peak memory that the run used on one device; 0: unknown."""
    utilisation_ppm: int = -1
    """Utilization of its devices while the run executes; -1: unknown."""


@dataclass(frozen=True, slots=True)
class SwitchingMeasured:
    """A node has parked and resumed a run that takes turns, or has tried to. Sent only while the policy introspects, if the
    values have changed, and at most once per `measured_us` for each run."""

    node: str
    key: RunKey
    switching: Switching


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """A save of a run has failed, and the run continues. Sent only each time the number of failures has doubled."""

    node: str
    key: RunKey
    why: str
    step: int = -1
    """Step of its last checkpoint; -1: unknown, or it has no checkpoint."""
    failures: int = 1
    """Failures so far."""


@dataclass(frozen=True, slots=True)
class StepTooLong:
    """A run that saves between two steps has finished no step for longer than its grace period. Sent again only if the time is
    a quarter longer than before."""

    node: str
    key: RunKey
    took_us: Micros
    evaluated: bool = False
    """It was evaluating during that time."""
