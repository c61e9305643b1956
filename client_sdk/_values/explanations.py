"""Why a job waits, and what a submit would meet."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._values.enums import JobReason
from client_sdk._values.jobs import Decision, Job, Task
from client_sdk._values.runs import SaveResult
from client_sdk._values.specs import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing that keeps a job from starting, with its numbers."""

    reason: JobReason
    detail: str = ""
    cause_job_id: int | None = None
    """The job behind it, where there is one."""
    need: Resources | None = None
    """For want of room: what the task needs that fits nowhere."""
    node: str | None = None
    """The node that comes closest, and in `free` what it has."""
    free: Resources | None = None
    nodes: int = 0
    """How many were looked at."""
    nodes_usable: int = 0
    """How many of them are up and not drained."""
    nodes_large_enough: int = 0
    """How many would fit it when empty."""
    holders: int = 0
    """Where cells of its virtual cluster are in use: how many jobs have those that it waits for."""
    holder_job_ids: tuple[int, ...] = ()
    """The first of these: those of which it is known when they end at the latest, the soonest before the others."""
    first_end: datetime | None = None
    """When the first of them ends at the latest: by its time limit, or as it leaves already; None: that is not known of any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A run that leaves for a trial, or would have to."""

    job_id: int
    user: str
    node: str
    resources: Resources
    grace_period: timedelta
    score: float
    """FitGpp's: the lowest is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEstimate:
    """When a job may start, if all jobs take as long as they are expected to and none comes before it."""

    time: datetime | None
    """None where nothing is known."""
    basis: str
    """What it rests on, for people."""
    runs_of_unknown_length: int = 0
    """Runs whose end it depends on and that have neither estimate nor time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionCost:
    """What a job's last preemption has cost it."""

    by_job_id: int
    by_user: str
    time: datetime | None
    away: timedelta | None
    """From the signal to its next start; None where it has not started since."""
    device_hours: float
    """Its devices x that time."""
    save: SaveResult | None = None
    """Whether its run had saved what it had done; None: it has not ended, or that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a job does not run now, or how it came to where it is."""

    job: Job
    """As it stands."""
    blockers: tuple[Blocker, ...] = ()
    """Everything that keeps it from starting, the first to be overcome first."""
    ahead: int = 0
    """Jobs before it in its queue."""
    ahead_job_ids: tuple[int, ...] = ()
    """The first of them."""
    decision: Decision | None = None
    """For a waiting trial: the decision that its victims leave by, or that would be taken now."""
    victims: tuple[Victim, ...] = ()
    """The runs that it waits for."""
    estimate: StartEstimate | None = None
    preempted: PreemptionCost | None = None
    """For a job that was preempted: the last time."""
    configuration_reason: str = ""
    """For a job that runs or has ended: why its last run has the configuration that it has, such as the times that the policy
    compared, for people. Empty where the policy compares nothing."""
    sharing_reason: str = ""
    """For a job that runs under a policy that introspects: which stage decided last how it holds its devices, and why, for
    people, or which jobs came to take turns with it. Empty: it has had its devices alone since it was placed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a job would meet if it were submitted now. Nothing was kept of it."""

    job: Job
    """As it would stand; its id is 0."""
    starts: bool
    """It would start at once, at the places in `tasks`."""
    tasks: tuple[Task, ...] = ()
    victims: tuple[Victim, ...] = ()
    """Where it would not start at once: the runs that would be told to leave for it."""
    explanation: Explanation | None = None
    """Where no runs would leave for it either: why it would wait."""
