"""Events: what nodes measure of runs, as long as somebody asks for it, and what runs say of themselves."""

from scheduler_service.core.model import RunKey
from scheduler_service.core.model.profiles import Switching
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros


@dataclass(frozen=True, slots=True)
class RunMeasured:
    """A node has read the step count of a run that is a sample. Only what is newer than before is told."""

    node: str
    key: RunKey
    steps: int
    """Those that the process of the run has done."""
    first_us: Micros
    """From the start of the process to the end of its first step."""
    elapsed_us: Micros
    """From the start of the process to the end of its last step."""
    total: int = 0
    """Steps of the whole job; 0: the program has not given it."""
    spread_ppm: int = 0
    """The standard error of the step time, in millionths of it."""
    memory_mib: int = 0
    """The most host memory that the run has used; 0: unknown."""


@dataclass(frozen=True, slots=True)
class GraceWanted:
    """A run has measured its saves and asks for a longer grace period. Only what is more than before is told."""

    node: str
    key: RunKey
    grace_us: Micros


@dataclass(frozen=True, slots=True)
class MiniBatchMeasured:
    """A node has measured a run. Told only while the policy asks for it, and at most once in its `measured_us` for each run."""

    node: str
    key: RunKey
    mini_batch_us: Micros
    """Of one mini-batch while the run executes: time in which the run is parked does not count."""
    count: int
    """Mini-batches behind this time: the last ones that the run has done."""
    confidence_ppm: int
    memory_mib: int = 0
    """The most memory that the run used of one device; 0: unknown."""
    utilisation_ppm: int = -1
    """Of its devices while the run executes; -1: unknown."""


@dataclass(frozen=True, slots=True)
class SwitchingMeasured:
    """A node has parked and resumed a run that takes turns, or has tried to. Only what has changed is told, while the policy
    introspects, and at most once in its `measured_us` for each run."""

    node: str
    key: RunKey
    switching: Switching


@dataclass(frozen=True, slots=True)
class SaveFailed:
    """A save of a run has failed, and the run goes on. Only every doubling of the number of failures is told."""

    node: str
    key: RunKey
    why: str
    step: int = -1
    """Of its last checkpoint; -1: unknown, or there is none."""
    failures: int = 1
    """So far."""


@dataclass(frozen=True, slots=True)
class StepTooLong:
    """A run that saves between two steps has ended none for longer than its grace period. Only what is a quarter more than
    before is told."""

    node: str
    key: RunKey
    took_us: Micros
    evaluated: bool = False
    """It evaluated then."""
