"""Shares of a cluster, and how much of it projects and users have used."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The share of a project, or of a user in a project."""

    project: str
    """Empty: the jobs without a project."""
    user: str
    """Empty: the project as a whole."""
    shares: float
    """As configured: compared with those of other projects, or of other users of the same project."""
    part_of_shares: float
    """From 0 to 1: its part of the shares of all projects, or of all users of its project."""
    device_hours: float
    """The usage, decayed."""
    part_of_usage: float
    """From 0 to 1: its part of the usage of all projects, or of all users of its project."""
    factor: float
    """2**-(part_of_usage / part_of_shares): 1 without usage, 0.5 if the usage is exactly its part. The highest is served
    first."""
    devices: float
    """The number of devices that it holds now. Jobs without devices count by their CPUs."""
    queued: int
    """The number of its queued jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of a site, or of a virtual cluster."""

    time: datetime | None
    """The time at which the shares were computed."""
    half_life: timedelta
    """The half-life of usage."""
    shares: tuple[Share, ...]
    """Each project, followed by its users; those with the highest factors first. At most 5000."""
    more_shares: int
    """The number of shares that are not shown."""
    queued: int
    """The number of queued jobs."""
    next_job_ids: tuple[int, ...]
    """The first 100 of them, in the order in which they are served."""
