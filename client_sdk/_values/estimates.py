"""How long a job is expected to take in its configurations."""

from dataclasses import dataclass
from datetime import timedelta

from client_sdk._values.enums import ApiEnum


class EstimateSource(ApiEnum):
    """Source of an estimate."""

    UNSPECIFIED = 0
    USER = 1
    HISTORY = 2
    """Past runs of the same script by the same user."""
    SAMPLE = 3
    """A short run that measured the time of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationEstimate:
    """The expected run time of one configuration of a job, and how it was determined."""

    configuration: int
    """Its number in `spec.configurations`."""
    time: timedelta | None = None
    """The total run time; None: unknown. Several sources are combined, each weighted by the inverse of its variance."""
    error: timedelta | None = None
    """The standard error of the time; None if only the user has given it."""
    sources: tuple[EstimateSource, ...] = ()
    """The sources of the time."""
    memory_mib: int = 0
    """The most host memory that a sample has used; 0: unknown."""
    detail: str = ""
    """Why the time is unknown, or the configuration impossible."""
    impossible: bool = False
    """The job failed in this configuration and does not start in it again."""
