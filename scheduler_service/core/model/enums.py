"""States, reasons and kinds, with the numbers that the database and the API use for them."""

from enum import IntEnum


class JobClass(IntEnum):
    """FitGpp's two classes (section 2): TE is a trial, BE is best-effort. Values as in ebb.v1.JobClass."""

    TRIAL = 1
    BEST_EFFORT = 2


class ShareMode(IntEnum):
    """How a run holds its devices. Values as in ebb.v1.ShareMode."""

    EXCLUSIVE = 1
    """Whole devices, alone."""
    PACKED = 2
    """A part of one device, at the same time as others."""
    SLICED = 3
    """A part of one device, in turn with others."""


class JobState(IntEnum):
    """The state of a job. Values as in ebb.v1.JobState, which says what each means."""

    QUEUED = 1
    STARTING = 2
    RUNNING = 3
    STOPPING = 4
    UNREACHABLE = 5
    SUCCEEDED = 6
    FAILED = 7
    CANCELLED = 8
    SUSPENDED = 9
    TIMED_OUT = 10


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})


class Reason(IntEnum):
    """Why a job is in its state. Values as in ebb.v1.JobReason, which says what each means."""

    NONE = 0
    BEHIND = 1
    NO_ROOM = 2
    TOO_LARGE = 3
    WAITING_FOR_VICTIMS = 4
    NOTHING_TO_PREEMPT = 5
    PREEMPTED = 6
    NODE_LOST = 7
    NODE_SILENT = 8
    CANCELLED = 9
    EXITED = 10
    SIGNALLED = 11
    LAUNCH_FAILED = 12
    EXIT_UNKNOWN = 13
    YIELDED = 14
    HELD = 15
    SUSPENDED = 16
    RESUMED = 17
    REQUEUED = 18
    TIME_LIMIT = 19
    OUT_OF_MEMORY = 20
    RETRYING = 21
    FAILED_ON_SEVERAL_NODES = 22
    DEPENDENCY = 23
    DEPENDENCY_NEVER = 24
    TASK_FAILED = 25
    GANG_NOT_READY = 26
    NODE_DRAINED = 27
    ELEMENTS_FAILED = 28
    ARRAY_LIMIT = 29
    DEVICE_FAULT = 30
    BEYOND_QUOTA = 31
    CELLS_FAULTY = 32
    RECLAIMED = 33
    NEVER_IN_QUOTA = 34
    RESIZED = 35
    SAMPLED = 40
    PARKED = 45
    MIGRATED = 46
    CHECKPOINT_AWAY = 55
    OUT_OF_DEVICE_MEMORY = 58
    NODES_CLOSED = 64


class StopReason(IntEnum):
    """Why a run was told to stop. Values as in ebb.agent.v1.StopReason."""

    PREEMPTED = 1
    CANCELLED = 2
    UNCLAIMED = 3
    SUSPENDED = 4
    REQUEUED = 5
    TIME_LIMIT = 6
    GANG = 7
    DRAINED = 8
    RECLAIMED = 9
    RESIZED = 10
    SAMPLED = 40
    PARKED = 45
    MIGRATED = 46


class Exit0AfterStop(IntEnum):
    """Meaning of exit code 0 after a stop signal. Values as in ebb.v1.Exit0AfterStop, which says what each means."""

    STOPPED = 1
    DONE = 2


class DependencyKind(IntEnum):
    """How the other job must end. Values as in ebb.v1.DependencyKind."""

    AFTER_OK = 1
    AFTER_ANY = 2
    AFTER_FAILED = 3


class NodeState(IntEnum):
    """The state of a node. Values as in ebb.v1.NodeState."""

    UP = 1
    SILENT = 2
    DELETED = 3
    """No longer a node of the cluster. Its row stays, for the runs that were there."""


class EarmarkPhase(IntEnum):
    VACATING = 1
    """Part of what is to be kept still belongs to victims that have not exited yet."""
    READY = 2
    """Everything is kept; the deadline runs."""


class EventKind(IntEnum):
    """The kind of a line in a job's story. Values as in ebb.v1.JobEventKind."""

    SUBMITTED = 1
    PLACED = 2
    STARTED = 3
    PREEMPTING = 4
    PREEMPTED = 5
    VACATED = 6
    REQUEUED = 7
    CANCEL_REQUESTED = 8
    NODE_SILENT = 9
    NODE_RETURNED = 10
    ENDED = 11
    EARMARK_DROPPED = 12
    HELD = 13
    RELEASED = 14
    SUSPEND_REQUESTED = 15
    SUSPENDED = 16
    RESUMED = 17
    REQUEUE_REQUESTED = 18
    UPDATED = 19
    TIME_LIMIT = 20
    TASK_ENDED = 21
    GANG_READY = 22
    DEVICE_FAULT = 23
    RECLAIMED = 24
    GUARANTEED = 25
    OPPORTUNISTIC = 26
    SAMPLED = 40
    PARKED = 41
    PARK_REFUSED = 42
    UNPARKED = 43
    PROBED = 49
    MIGRATING = 55
    MIGRATED = 56
    MIGRATION_FAILED = 57
    RESIZED = 58
    RETIMED = 59
    SET_ASIDE = 60
    STOP_OVERDUE = 61
    SAVE_FAILED = 62
    GRACE_TOO_SHORT = 63
    NOTHING_TO_PREEMPT = 65


class OperationKind(IntEnum):
    """The kind of an operation. Values as in ebb.v1.OperationKind."""

    PARK = 1
    MIGRATE = 2
    PROBE = 3
    RESIZE = 4
    VACATE = 5


class OperationPhase(IntEnum):
    """The phase of an operation. Values as in ebb.v1.OperationPhase, which says what each means."""

    PARKING = 1
    PARKED = 2
    WAITING = 3
    """Waits for the devices of its runs to become idle, so that they can resume; a resized job waits in its queue."""
    RESUMING = 4
    WARMING = 5
    """The destination gets ready while the job keeps running."""
    SAVING = 6
    """The job saves its work and stops."""
    STARTING = 7
    """The job starts at its destination, or with its new size."""
