"""Runs of a job, and the operations that change them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._values.enums import ApiEnum
from client_sdk._values.job_reasons import JobReason
from client_sdk._values.specs import Resources


class RunPhase(ApiEnum):
    """The phase of a launch of a task."""

    UNSPECIFIED = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    """It was told to stop and is within its grace period."""
    ENDED = 4
    READY = 5
    """A task of a gang that is prepared and waits for the other tasks."""
    PARKING = 6
    PARKED = 7
    RESUMING = 8
    WARMING = 9
    """At the destination of a migration, before the job resumes there."""


class OperationKind(ApiEnum):
    """A change of a running job that takes several phases."""

    UNSPECIFIED = 0
    PARK = 1
    """The run releases its devices and stays in the memory of its node until it is resumed."""
    MIGRATE = 2
    PROBE = 3
    RESIZE = 4
    """The job stops and starts again with another number of tasks."""
    VACATE = 5
    """The job saves its work and stops, because it is suspended."""


class OperationPhase(ApiEnum):
    UNSPECIFIED = 0
    PARKING = 1
    """The run was told to park and still holds its devices."""
    PARKED = 2
    """The run is parked. Its devices are free for others."""
    WAITING = 3
    """In a park: the run is parked, and resumes when its devices are idle. In a resize: the job is in its queue."""
    RESUMING = 4
    """The run was told to resume, and holds its devices."""
    WARMING = 5
    """The destination of a migration is preparing, and the job still runs on its node."""
    SAVING = 6
    """The job saves its work and stops."""
    STARTING = 7
    """The job starts at its destination, or with its new number of tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation on a job's run that is in progress."""

    kind: OperationKind
    phase: OperationPhase
    begin_time: datetime
    phase_time: datetime
    """When it entered its phase."""
    deadline: datetime | None = None
    """When the phase is abandoned; None: it has no time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPhaseTime:
    """The duration of a phase of an operation that has ended."""

    kind: OperationKind
    phase: OperationPhase
    begin_time: datetime
    duration: timedelta
    detail: str = ""
    """Measurements, such as "cooperative, 512 MiB, residue 0 MiB", or why the phase was abandoned."""


class SaveOutcome(ApiEnum):
    """Whether a run's work was saved when it ended."""

    UNSPECIFIED = 0
    """It cannot be determined."""
    SAVED = 1
    NOT_SAVED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveResult:
    """Whether a run's work was saved when it ended. `str` describes it in words."""

    outcome: SaveOutcome
    step: int | None = None
    """The step of the last checkpoint of the run, which contains all of its work if the outcome is SAVED. None: it is unknown,
    or there is no checkpoint."""
    detail: str = ""
    """Text for people: why it did not save, or why that is unknown; if it was saved by anything but the run: by what."""

    def __str__(self) -> str:
        at = "" if self.step is None else f" at step {self.step}"
        if self.outcome is SaveOutcome.SAVED:
            return f"saved{at}"
        if self.outcome is SaveOutcome.NOT_SAVED:
            last = "" if self.step is None else f"; the last checkpoint is of step {self.step}"
            return f"not saved: {self.detail or 'the reason is not known'}{last}"
        return "cannot be known" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAtRisk:
    """A running job that loses its work if it is stopped: it has not registered with Ebb, does not handle SIGTERM, has no
    checkpoint signal or command, and has saved nothing."""

    job_id: int
    user: str
    name: str
    run_time: timedelta
    """How long its run has executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A task of a launch of a job, whether it has ended or not."""

    run: int
    task: int
    """The rank within a gang; 0 for a job of one task."""
    node: str
    devices: tuple[int, ...]
    """The devices that it was given. A parked run does not hold them."""
    resources: Resources
    phase: RunPhase
    place_time: datetime
    start_time: datetime | None = None
    end_time: datetime | None = None
    exit_code: int = 0
    exit_signal: int = 0
    stop_reason: JobReason = JobReason.UNSPECIFIED
    """Why it was told to stop; UNSPECIFIED if it was not."""
    saved: bool = False
    """It saved its work and exited because it was told to stop: the next run continues from that checkpoint."""
    lost: bool = False
    """It was lost with its node, or its exit status is unknown."""
    log_path: str | None = None
    guaranteed: bool = False
    """It holds cells of its virtual cluster."""
    parks: int = 0
    """The number of times that it was told to park."""
    parked_time: timedelta = timedelta(0)
    """The total time that it was parked."""
    waited_time: timedelta = timedelta(0)
    """The total time that it waited for its turns on shared devices."""
    rung: str | None = None
    """The way in which it is parked: "cooperative" (by the program itself), "driver" (by the driver of its devices) or
    "stopped" (it has nothing on them). None: it is not parked."""
    parked_mib: int = 0
    """While it is parked: the host memory that holds the former contents of its devices."""
    residue_mib: int = 0
    """While it is parked: the memory that it still uses on each of its devices."""
    operations: tuple[OperationPhaseTime, ...] = ()
    """The durations of the last phases of operations on it, at most 16, in order."""
    began_from: str | None = None
    """The name of the checkpoint that its program loaded. None: it loaded none or did not report it."""
    checkpoint: str | None = None
    """The name of the last checkpoint that its program saved. None: it saved none or did not report it."""
    save: SaveResult | None = None
    """Once it has ended, whether its work was saved. None: there was nothing to save, or its agent does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A page of a job's runs, newest first, and by rank within a run."""

    runs: tuple[Run, ...]
    next_page_token: str
    """Empty on the last page."""
