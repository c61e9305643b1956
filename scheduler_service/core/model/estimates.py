"""What is known of how long a job would run in each of its configurations, and from where (AlloX, section 4.1)."""

from enum import IntEnum
from typing import NamedTuple

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros


class Source(IntEnum):
    """Where an estimate comes from. Values as in ebb.v1.EstimateSource."""

    USER = 1
    HISTORY = 2
    SAMPLE = 3


class Estimate(NamedTuple):
    """What one source says of one configuration of a job."""

    configuration: int
    source: Source
    time_us: Micros = 0
    """How long the job would run in all; 0: the source cannot say, and `detail` says why."""
    error_us: Micros = 0
    """The standard error of that time."""
    memory_mib: int = 0
    """The most host memory that the run was seen to use; 0: unknown."""
    detail: str = ""
    impossible: bool = False
    """The job failed in this configuration and is not started in it again."""
    steps: int = 0
    """Of a sample: how many steps the job has in all, as the program says; 0: unknown."""


class Reading(NamedTuple):
    """A point of a run's step count."""

    steps: int
    """Steps that the process of the run has done."""
    elapsed_us: Micros
    """From the start of the process to the end of the last of these steps."""


class Sampling(NamedTuple):
    """The current launch of a job is a sample: it is stopped when enough is known of its configuration."""

    share_ppm: int
    """How many of the job's steps it does, in millionths of all."""
    most_us: Micros
    """How long it may run."""
    until_us: Micros | None = None
    """When that time is over; None: its process has not begun."""
    readings: tuple[Reading, ...] = ()
    """What was read so far: the first step, one about half way, and the last one."""
    total: int = 0
    """Steps of the whole job; 0: the program has not given it."""
    spread_ppm: int = 0
    """The standard error of the step time, in millionths of it."""
    memory_mib: int = 0
    """The most that the run was seen to use."""


class SampledMemory(NamedTuple):
    """The host memory of a configuration, after its sample."""

    configuration: int
    memory_mib: int
    """What it asks for now: the default again, once a run has needed more than the sample."""
    default_mib: int
    """What it asked for at first."""


class PastRun(NamedTuple):
    """How long a job ran that succeeded."""

    model: str
    """Of its devices; empty if it had none."""
    devices: int
    cpu_milli: int
    tasks: int
    sizes: tuple[float, ...]
    """The numbers among the arguments of its command, in order."""
    time_us: Micros


@dataclass(frozen=True)
class History:
    """The last runs of one user's script."""

    user: str
    script: str
    """See `operations.history.script_of`."""
    runs: tuple[PastRun, ...]
    """The last one is the newest."""
    used_us: Micros
    """When the newest was added."""
