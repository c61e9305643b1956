"""Estimates of how long a job would run in each of its configurations, and their sources (AlloX, section 4.1)."""

from enum import IntEnum
from typing import NamedTuple

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros


class Source(IntEnum):
    """The source of an estimate. Values as in ebb.v1.EstimateSource."""

    USER = 1
    HISTORY = 2
    SAMPLE = 3


class Estimate(NamedTuple):
    """An estimate from one source for one configuration of a job."""

    configuration: int
    source: Source
    time_us: Micros = 0
    """Total run time of the job; 0: the source cannot say, and `detail` says why."""
    error_us: Micros = 0
    """The standard error of that time."""
    memory_mib: int = 0
    """Peak host memory that the run was seen to use; 0: unknown."""
    detail: str = ""
    impossible: bool = False
    """The job failed in this configuration and is not started in it again."""
    steps: int = 0
    """Total steps of the job, as reported by the program during a sample; 0: unknown."""


class Reading(NamedTuple):
    """One reading of a run's step count."""

    steps: int
    """Steps that the process of the run has done."""
    elapsed_us: Micros
    """From the start of the process to the end of the last of these steps."""


class Sampling(NamedTuple):
    """A launch that is a sample: it is stopped when enough is known about its configuration."""

    share_ppm: int
    """Part of the job's steps that the sample does, in millionths."""
    most_us: Micros
    """Time that the sample may run."""
    until_us: Micros | None = None
    """End of that time; None: its process has not begun."""
    readings: tuple[Reading, ...] = ()
    """Readings so far: of the first step, of one about halfway, and of the last one."""
    total: int = 0
    """Steps of the whole job; 0: the program has not reported them."""
    spread_ppm: int = 0
    """The standard error of the step time, in millionths of it."""
    memory_mib: int = 0
    """Peak host memory that the run was seen to use."""


class SampledMemory(NamedTuple):
    """The host memory of a configuration, after its sample."""

    configuration: int
    memory_mib: int
    """Memory that it requests now; the default again once a run has needed more than the sample."""
    default_mib: int
    """Memory that it requested at first."""


class PastRun(NamedTuple):
    """The run time of a job that succeeded."""

    model: str
    """Model of its devices; empty if it had none."""
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
