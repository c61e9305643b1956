"""What the API speaks of, as plain values.

Frozen dataclasses, equal by content. Times are timezone-aware datetimes in UTC, durations are timedeltas, and what is
absent is None. Enum members have the numbers of `ebb.v1`; a number that this SDK is too old to know reads as
UNSPECIFIED.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum


class JobClass(IntEnum):
    """FitGpp's two classes of work."""

    UNSPECIFIED = 0
    TRIAL = 1
    """Must start now; may have best-effort jobs preempted for it."""
    BEST_EFFORT = 2
    """Runs when there is room; may be preempted, and then goes on from its checkpoint."""


class JobState(IntEnum):
    """Where a job stands. Why it stands there is `JobReason`."""

    UNSPECIFIED = 0
    QUEUED = 1
    """Waits for resources; also a preempted job that waits to go on."""
    STARTING = 2
    """Placed; its node has not yet reported that the process runs."""
    RUNNING = 3
    STOPPING = 4
    """Was told to stop and is inside its grace period."""
    UNREACHABLE = 5
    """Its node is silent. The job keeps its devices, and may well be running."""
    SUCCEEDED = 6
    FAILED = 7
    CANCELLED = 8

    @property
    def ended(self) -> bool:
        """Whether this is an end state: a job never leaves it."""
        return self in ENDED


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
LIVE = tuple(state for state in JobState if state is not JobState.UNSPECIFIED and state not in ENDED)


class JobReason(IntEnum):
    """Why a job is in its state."""

    UNSPECIFIED = 0
    BEHIND = 1
    """QUEUED: another job is first in its queue."""
    NO_ROOM = 2
    """QUEUED: first in its queue; no node has enough unallocated resources now."""
    TOO_LARGE = 3
    """QUEUED: no node of the cluster is large enough, even when empty."""
    WAITING_FOR_VICTIMS = 4
    """QUEUED trial: runs were told to leave, and it starts when they have."""
    NOTHING_TO_PREEMPT = 5
    """QUEUED trial: preempting everything it may preempt would not make room."""
    PREEMPTED = 6
    """QUEUED or STOPPING: preempted for the trial in `cause_job_id`."""
    NODE_LOST = 7
    """QUEUED: its node came back without the run."""
    NODE_SILENT = 8
    """UNREACHABLE: no sign of life from its node."""
    CANCELLED = 9
    EXITED = 10
    """SUCCEEDED with exit code 0, or FAILED with another."""
    SIGNALLED = 11
    """FAILED: ended by a signal."""
    LAUNCH_FAILED = 12
    """FAILED: the command could not be executed."""
    EXIT_UNKNOWN = 13
    """FAILED: the process is gone and nothing on its node knows how it ended."""
    YIELDED = 14
    """QUEUED: it saved its work and left although Ebb had not asked, as when its machine is being shut down."""


class JobEventKind(IntEnum):
    """What a line of a job's story tells."""

    UNSPECIFIED = 0
    SUBMITTED = 1
    PLACED = 2
    STARTED = 3
    PREEMPTING = 4
    """This trial had runs preempted; `decision` has the scores."""
    PREEMPTED = 5
    """This job's run was told to leave for the trial in `cause_job_id`."""
    VACATED = 6
    """The run left, by itself or killed at the end of its grace period."""
    REQUEUED = 7
    CANCEL_REQUESTED = 8
    NODE_SILENT = 9
    NODE_RETURNED = 10
    ENDED = 11
    EARMARK_DROPPED = 12
    """Resources kept for this trial were given up."""


class NodeState(IntEnum):
    """Whether a node's agent is heard."""

    UNSPECIFIED = 0
    UP = 1
    SILENT = 2
    """No sign of life. Its runs keep their devices, and nothing new is placed on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a task occupies, or a node offers. `cpus` counts cores and is exact to a thousandth of one."""

    cpus: float = 0.0
    memory_mib: int = 0
    devices: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What a user asks to be run.

    `command` is the program and its arguments; no shell stands between. `working_directory` is an absolute path on the
    node; None means the job's own directory there. `grace_period` is the time from the stop signal to the kill; None
    means the site's default, and zero that the job may be killed at once and go on from its last checkpoint.
    """

    command: tuple[str, ...]
    resources: Resources
    name: str = ""
    job_class: JobClass = JobClass.BEST_EFFORT
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    working_directory: str | None = None
    grace_period: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it stood when the scheduler answered."""

    id: int
    spec: JobSpec
    user: str = ""
    state: JobState = JobState.UNSPECIFIED
    reason: JobReason = JobReason.UNSPECIFIED
    reason_detail: str = ""
    """A sentence for people where the reason alone does not say all."""
    cause_job_id: int | None = None
    """The job behind the reason: who is ahead, or for whom it was preempted."""
    run: int = 0
    """Launches so far, and the number of the current or last one."""
    node: str | None = None
    """Where the current or last run is."""
    devices: tuple[int, ...] = ()
    """Indices of its devices on that node."""
    submit_time: datetime | None = None
    start_time: datetime | None = None
    """When the first run's process began."""
    end_time: datetime | None = None
    exit_code: int = 0
    """Of the last run that ended; so is `exit_signal`, which is 0 unless a signal ended it."""
    exit_signal: int = 0
    preempted_for_trial: int = 0
    """How often it was preempted for a trial."""
    cancel_requested: bool = False
    log_path: str | None = None
    """Standard output and error of the current or last run, as a path on its node."""

    @property
    def ended(self) -> bool:
        """Whether the job has its end state."""
        return self.state.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUpdate:
    """One message of a watch. A snapshot replaces everything that was known; any other adds to it."""

    snapshot: bool
    jobs: tuple[Job, ...]
    commit_no: int
    """Where a later watch can go on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One run that a preemption decision considered, with its numbers in FitGpp's Eqns 1-3."""

    job_id: int
    run: int
    node: str
    demand: Resources
    node_free: Resources
    """Unallocated on its node when the decision was taken."""
    size: float
    grace_period: timedelta
    score: float
    preempted_for_trial: int
    sufficient: bool
    """With this run gone, the trial fits on its node (Eqn 2)."""
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Why these runs were preempted: FitGpp's Eqns 1-4 with their numbers."""

    trial_job_id: int
    node: str
    demand: Resources
    rule: str
    """"fitgpp" when Eqn 4 chose one run, "random" when no single run was sufficient."""
    s: float
    cap: int
    max_size: float
    max_grace_period: timedelta
    considered: int
    """How many runs were considered; `candidates` are those of lowest score."""
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A line of a job's story."""

    job_id: int
    time: datetime | None
    kind: JobEventKind
    run: int = 0
    node: str | None = None
    reason: JobReason = JobReason.UNSPECIFIED
    cause_job_id: int | None = None
    exit_code: int = 0
    exit_signal: int = 0
    text: str = ""
    decision: Decision | None = None
    commit_no: int = 0
    """The commit that made it durable; orders events across jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device (GPU) of a node."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    path: tuple[int, ...] = ()
    """Its position at each of the node's `levels`, outermost first."""
    job_ids: tuple[int, ...] = ()
    """The jobs whose runs hold it; several when they share it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with an agent."""

    name: str
    state: NodeState
    capacity: Resources
    free: Resources
    """Neither held by a run nor earmarked."""
    earmarked: Resources
    """Kept for trials whose victims are leaving."""
    levels: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    address: str = ""
    agent_version: str = ""
    state_time: datetime | None = None
    """Since when it has been in this state."""
