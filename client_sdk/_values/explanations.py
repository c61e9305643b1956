"""Explanations of why a job waits, and previews of a submit."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._values.job_reasons import JobReason
from client_sdk._values.jobs import Decision, Job, Task
from client_sdk._values.runs import SaveResult
from client_sdk._values.specs import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing that keeps a job from starting, with its numbers."""

    reason: JobReason
    detail: str = ""
    cause_job_id: int | None = None
    """The job that causes it, if a job does."""
    need: Resources | None = None
    """With NO_ROOM: the resources of the task that fits on no node."""
    node: str | None = None
    """The node that comes closest; `free` has its free resources."""
    free: Resources | None = None
    nodes: int = 0
    """The number of nodes considered."""
    nodes_usable: int = 0
    """The number of these that are up and not drained."""
    nodes_large_enough: int = 0
    """The number of these that would be large enough when empty."""
    holders: int = 0
    """If the cells of its virtual cluster are in use: the number of jobs that hold the cells that it waits for."""
    holder_job_ids: tuple[int, ...] = ()
    """The first of these jobs; those with a known latest end come first, ordered by it."""
    first_end: datetime | None = None
    """The earliest of their latest ends, from time limits and grace periods of stopping runs; None: no end is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A run that is, or would be, preempted for a trial."""

    job_id: int
    user: str
    node: str
    resources: Resources
    grace_period: timedelta
    score: float
    """FitGpp's score; the run with the lowest is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEstimate:
    """When a job may start, if all jobs take as long as expected and none is placed ahead of it."""

    time: datetime | None
    """None if no estimate is possible."""
    basis: str
    """The basis of the estimate, as text for people."""
    runs_of_unknown_length: int = 0
    """The number of runs that it depends on and that have neither an estimate nor a time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionCost:
    """The cost of a job's last preemption."""

    by_job_id: int
    by_user: str
    time: datetime | None
    away: timedelta | None
    """From the signal to its next start; None if it has not started since."""
    device_hours: float
    """The number of its devices multiplied by `away`."""
    save: SaveResult | None = None
    """Whether its run saved its work; None: it has not ended, or that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job does not run now, or how it got to its present state."""

    job: Job
    """The job in its present state."""
    blockers: tuple[Blocker, ...] = ()
    """Everything that keeps it from starting, in the order in which it must be resolved."""
    ahead: int = 0
    """The number of jobs ahead of it in its queue."""
    ahead_job_ids: tuple[int, ...] = ()
    """The first of these jobs."""
    decision: Decision | None = None
    """For a waiting trial: the decision by which runs are being preempted for it, or that would be taken now."""
    victims: tuple[Victim, ...] = ()
    """The runs that it waits for."""
    estimate: StartEstimate | None = None
    preempted: PreemptionCost | None = None
    """The last preemption of the job, if it was preempted."""
    configuration_reason: str = ""
    """For a job that runs or has ended: why its last run has its configuration, such as the times that the policy compared, as
    text for people. Empty if the policy does not compare configurations."""
    sharing_reason: str = ""
    """For a job that runs under a policy with introspection: which stage last decided how it shares its devices and why, or
    which jobs were added to take turns with it, as text for people. Empty: it has not shared them since it was placed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The answer to a submit that is only tried: nothing is stored."""

    job: Job
    """The job after the submit; its id is 0."""
    starts: bool
    """It would start immediately, in the places in `tasks`."""
    tasks: tuple[Task, ...] = ()
    victims: tuple[Victim, ...] = ()
    """If it would not start immediately: the runs that would be preempted for it."""
    explanation: Explanation | None = None
    """If no runs would be preempted for it either: why it would wait."""
