"""The report of a policy by usage, for people: who has which share, and who has used how much of it."""

from typing import NamedTuple

from scheduler_service.core.model.values import Micros


class Share(NamedTuple):
    """The usage and shares of a project, or of a user within a project."""

    project: str
    """Empty: the jobs without a project."""
    user: str
    """Empty: the project as a whole."""
    shares: float
    device_seconds: float
    """Its usage, decayed."""
    devices: float
    """How many devices it holds now."""
    queued: int
    """How many of its jobs are in the queue."""
    part_of_shares: float = 0
    """Its shares as a part of those of all projects, or of all users of its project."""
    part_of_usage: float = 0
    """Its usage as a part of theirs."""
    factor: float = 1
    """2**-(part_of_usage / part_of_shares): 1 if it has used nothing, 0.5 if it has used exactly its part."""


class Shares(NamedTuple):
    at_us: Micros
    """The time of the report."""
    half_life_us: Micros
    """Time in which usage decays to a half."""
    shares: tuple[Share, ...]
    """Each project, followed by its users. Those that are served first come first, if no priority says otherwise."""
    queued: int
    """How many jobs are in the queue."""
    next_jobs: tuple[int, ...]
    """The first of these jobs, in the order in which they are served."""
