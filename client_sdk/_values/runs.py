"""Runs of a job, and the operations that change them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from client_sdk._values.enums import ApiEnum, JobReason
from client_sdk._values.specs import Resources


class RunPhase(ApiEnum):
    """Where a launch of a task stands."""

    UNSPECIFIED = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    """It was told to stop, and may use its grace period."""
    ENDED = 4
    READY = 5
    """Of a gang: prepared, and waits for the other tasks."""
    PARKING = 6
    PARKED = 7
    RESUMING = 8
    WARMING = 9
    """At the destination of a migration, before the job goes on there."""


class OperationKind(ApiEnum):
    """A change of a running job that takes several phases."""

    UNSPECIFIED = 0
    PARK = 1
    """The run leaves its devices and stays in the memory of its node, until it is resumed."""
    MIGRATE = 2
    PROBE = 3
    RESIZE = 4
    """The job stops, and starts again with another number of tasks."""
    VACATE = 5
    """The job saves its work and stops, because it is suspended."""


class OperationPhase(ApiEnum):
    UNSPECIFIED = 0
    PARKING = 1
    """The run was told to park, and holds its devices."""
    PARKED = 2
    """The run is parked. Its devices are free for others."""
    WAITING = 3
    """Of a park: the run is parked, and is resumed when its devices are idle. Of a resize: the job is in its queue."""
    RESUMING = 4
    """The run was told to resume, and holds its devices."""
    WARMING = 5
    """The destination of a migration makes itself ready, and the job runs where it is."""
    SAVING = 6
    """The job saves its work and stops."""
    STARTING = 7
    """The job begins at its destination, or with its new number of tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What is being done to a job's run."""

    kind: OperationKind
    phase: OperationPhase
    begin_time: datetime
    phase_time: datetime
    """When it came to its phase."""
    deadline: datetime | None = None
    """When the phase is given up; None: it may take any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPhaseTime:
    """A phase of an operation that is over."""

    kind: OperationKind
    phase: OperationPhase
    begin_time: datetime
    duration: timedelta
    detail: str = ""
    """What was measured, such as "cooperative, 512 MiB, residue 0 MiB", or why the phase was given up."""


class SaveOutcome(ApiEnum):
    """Whether what a run had done was saved when it ended."""

    UNSPECIFIED = 0
    """It cannot be known."""
    SAVED = 1
    NOT_SAVED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveResult:
    """Whether what a run had done was saved when it ended. `str` says it in words."""

    outcome: SaveOutcome
    step: int | None = None
    """The step of the last checkpoint of the run, which holds all that it had done if the outcome is SAVED. None: it is not
    known, or there is no checkpoint."""
    detail: str = ""
    """For people: why it did not save, or why that cannot be known; of one that saved: what has saved it, unless it did so."""

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
    """A running job that loses what it has done if it is stopped: it has not registered with Ebb, handles no SIGTERM, has no
    checkpoint signal or command, and has saved nothing."""

    job_id: int
    user: str
    name: str
    run_time: timedelta
    """For how long its run has executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A task of a launch of a job, whether it has ended or not."""

    run: int
    task: int
    """The rank within a gang; 0 for a job of one task."""
    node: str
    devices: tuple[int, ...]
    """Those that it was given. A parked run does not hold them."""
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
    """It saved its work and left because it was told to: the next run goes on from that checkpoint."""
    lost: bool = False
    """It ended with its node, or nobody knows how it ended."""
    log_path: str | None = None
    guaranteed: bool = False
    """It holds cells of its virtual cluster."""
    parks: int = 0
    """How often it was told to park."""
    parked_time: timedelta = timedelta(0)
    """How long it was parked, in all."""
    waited_time: timedelta = timedelta(0)
    """How long it waited for its turns on devices that it shares, in all."""
    rung: str | None = None
    """How it is parked: "cooperative" (by the program itself), "driver" (by the driver of its devices) or "stopped" (it has
    nothing on them). None: it is not."""
    parked_mib: int = 0
    """While it is parked: the host memory that is kept for what it had on its devices."""
    residue_mib: int = 0
    """While it is parked: what is left on each of its devices."""
    operations: tuple[OperationPhaseTime, ...] = ()
    """What the last phases of operations on it took, at most 16, in order."""
    began_from: str | None = None
    """The name of the checkpoint that its program loaded. None: none, or the program did not say."""
    checkpoint: str | None = None
    """The name of the last checkpoint that its program saved, as for `began_from`."""
    save: SaveResult | None = None
    """Whether what it had done was saved, once it has ended. None: there was nothing to save, or its agent does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Some of a job's runs, the newest first, and the tasks of a run by rank."""

    runs: tuple[Run, ...]
    next_page_token: str
    """Empty on the last page."""
