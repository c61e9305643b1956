"""The words that the API has for where things stand; `models` is where users find them."""

from enum import IntEnum


class ApiEnum(IntEnum):
    """One of the API's words. Printed, it is its name; in JSON, and wherever it is counted with, its number in the API."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


class JobClass(ApiEnum):
    """FitGpp's two classes of work."""

    UNSPECIFIED = 0
    TRIAL = 1
    """Must start now; may have best-effort jobs preempted for it."""
    BEST_EFFORT = 2
    """Runs when there is room; may be preempted, and then goes on from its checkpoint."""


class JobState(ApiEnum):
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
    SUSPENDED = 9
    """Set aside by a user: it saved its work and left, and does not return by itself."""
    TIMED_OUT = 10
    """Ended because it ran for longer than its time limit."""

    @property
    def ended(self) -> bool:
        """Whether this is an end state: a job never leaves it."""
        return self in ENDED


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})
LIVE = tuple(state for state in JobState if state is not JobState.UNSPECIFIED and state not in ENDED)


class JobReason(ApiEnum):
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
    """QUEUED, of one that may have others preempted, such as a trial: all of these together would not make room."""
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
    HELD = 15
    """QUEUED: a user holds it back."""
    SUSPENDED = 16
    """STOPPING or SUSPENDED: a user suspended it."""
    RESUMED = 17
    """QUEUED: a user had it resumed; it goes on from its checkpoint."""
    REQUEUED = 18
    """STOPPING or QUEUED: a user had it put back into its queue."""
    TIME_LIMIT = 19
    """STOPPING or TIMED_OUT: it ran for longer than its time limit."""
    OUT_OF_MEMORY = 20
    """FAILED: it used more host memory than it asked for, or the node had none left."""
    RETRYING = 21
    """QUEUED: a run failed, and it is tried again from `eligible_time` on."""
    FAILED_ON_SEVERAL_NODES = 22
    """FAILED: it failed on several nodes, so the fault is its own and it is not tried again."""
    DEPENDENCY = 23
    """QUEUED: waits for the end of the job in `cause_job_id`."""
    DEPENDENCY_NEVER = 24
    """CANCELLED: the job in `cause_job_id` ended otherwise than it had to."""
    TASK_FAILED = 25
    """STOPPING: one of its tasks failed, and the others are told to leave."""
    GANG_NOT_READY = 26
    """STOPPING or QUEUED: not all of its tasks were ready in time."""
    NODE_DRAINED = 27
    """STOPPING or QUEUED: its node is being drained."""
    ELEMENTS_FAILED = 28
    """FAILED array: some of its elements did not succeed."""
    ARRAY_LIMIT = 29
    """QUEUED array: as many of its elements run as may at once."""
    DEVICE_FAULT = 30
    """QUEUED: a run failed on a device that is faulty, which is not the job's fault; it starts again on another."""
    BEYOND_QUOTA = 31
    """QUEUED: the cells of its virtual cluster are in use."""
    CELLS_FAULTY = 32
    """QUEUED: its virtual cluster has free cells, and there is nothing for them now, because devices are faulty."""
    RECLAIMED = 33
    """STOPPING or QUEUED: it held devices as opportunistic, to which the job in `cause_job_id` has a right."""
    NEVER_IN_QUOTA = 34
    """QUEUED: its virtual cluster owns nothing that it could ever run in."""
    RESIZED = 35
    """STOPPING or QUEUED: a user resized it; it starts again with another number of tasks."""
    SAMPLED = 40
    """STOPPING or QUEUED: its run was a sample, which has measured one of the job's configurations."""
    PARKED = 45
    """STOPPING: it is being parked. SUSPENDED: its run is parked. QUEUED: its run could not go on after a park."""
    MIGRATED = 46
    """STOPPING or STARTING: it goes on at another node. QUEUED: it did not begin there."""
    CHECKPOINT_AWAY = 55
    """QUEUED: its checkpoint could not be fetched from the node where it ran last."""
    OUT_OF_DEVICE_MEMORY = 58
    """FAILED: it used more memory of a device, which others used at the same time, than it may."""
    NODES_CLOSED = 64
    """QUEUED: no node that is open could take it, even if it were empty; `reason_detail` says for which nodes it waits."""


class JobEventKind(ApiEnum):
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
    HELD = 13
    RELEASED = 14
    SUSPEND_REQUESTED = 15
    SUSPENDED = 16
    """It left because a user suspended it."""
    RESUMED = 17
    REQUEUE_REQUESTED = 18
    UPDATED = 19
    """A user changed its priority, limits or dependencies; `text` says how."""
    TIME_LIMIT = 20
    """The run was told to leave, since its time limit was over."""
    TASK_ENDED = 21
    """One task of a gang is over, and others are not; `text` says which."""
    GANG_READY = 22
    """Every task of a gang is ready, and all were told to begin."""
    DEVICE_FAULT = 23
    """A device that its run holds is faulty; `text` says which and why."""
    RECLAIMED = 24
    """This opportunistic job was told to leave for the job in `cause_job_id`, which has a right to its devices."""
    GUARANTEED = 25
    """It runs on where it is, in cells of its virtual cluster from now on."""
    OPPORTUNISTIC = 26
    """It runs on where it is, and lost its guarantee."""
    SAMPLED = 40
    """What a sample has shown of one of the job's configurations; `text` says what."""
    PARKED = 41
    """Its run is parked, and its devices are free for others; `text` says what that took."""
    PARK_REFUSED = 42
    """Its run could not be parked or resumed; `text` has the reason and the consequence."""
    UNPARKED = 43
    """Its run executes again after a park; `text` says what that took."""
    PROBED = 49
    """A change of how its run holds devices was tried, kept or undone; `text` says which, and what was measured."""
    MIGRATING = 55
    """Another node makes itself ready for it."""
    MIGRATED = 56
    """It runs at the other node; `text` says what each phase took."""
    MIGRATION_FAILED = 57
    """It does not go to the other node; `text` says why."""
    RESIZED = 58
    """It runs with another number of tasks; `text` says what each phase of the resize took."""
    RETIMED = 59
    """Its turns on shared devices have another length; `text` says which, and why."""
    SET_ASIDE = 60
    """The database refused what the scheduler would do for it: it is held until somebody releases it; `text` says why."""
    STOP_OVERDUE = 61
    """It should have ended after it was told to stop, and its node is told again; `text` says since when, and what to do."""
    SAVE_FAILED = 62
    """A save of its run failed, and the run goes on; `text` says why."""
    GRACE_TOO_SHORT = 63
    """By what was measured, a stop takes longer than its grace period; `text` says what takes so long."""
    NOTHING_TO_PREEMPT = 65
    """It begins to wait, and nothing that it may have preempted would make room; `text` says which running jobs are spared,
    and why."""


class Guarantee(ApiEnum):
    """In which cells a job may run, where the site has virtual clusters."""

    UNSPECIFIED = 0
    GUARANTEED = 1
    """In those that its virtual cluster owns; it waits for them, and nobody else takes them away."""
    OVERFLOW = 2
    """In those, or else meanwhile in anybody's idle ones."""
    OPPORTUNISTIC = 3
    """In anybody's idle ones, from which it goes when their owner wants them."""


class ShareMode(ApiEnum):
    """How a job holds its devices."""

    UNSPECIFIED = 0
    EXCLUSIVE = 1
    """Whole devices, alone."""
    PACKED = 2
    """A part of one device, at the same time as other jobs. Each has a part of the memory."""
    SLICED = 3
    """A part of the time of one device, in turn with other jobs. Each has the whole device in its turn."""


class TurnState(ApiEnum):
    """Whose turn it is on devices that are shared."""

    UNSPECIFIED = 0
    """The job takes no turns with others, or its node has not said yet whose turn it is."""
    EXECUTES = 1
    """The job has its devices."""
    WAITS = 2
    """The job is parked until its turn."""


class Exit0AfterStop(ApiEnum):
    """What an exit with 0 means after a stop signal for preemption, suspension, reclaim, requeue or drain. A program that has
    said in EBB_DONE_FILE that its work is done has finished in any case."""

    UNSPECIFIED = 0
    STOPPED = 1
    """The program was stopped: the job runs again, or stays suspended."""
    DONE = 2
    """The program has finished its work."""


class PostingKind(ApiEnum):
    """What stands on the bulletin board of cells."""

    UNSPECIFIED = 0
    OFFER = 1
    REQUEST = 2


class PostingState(ApiEnum):
    """Where an offer or a request is in its life."""

    UNSPECIFIED = 0
    OPEN = 1
    """On the board."""
    MATCHED = 2
    """A request that got its cells, or an offer that was swapped. Any other offer stands until its window is over."""
    WITHDRAWN = 3
    EXPIRED = 4


class ExchangeState(ApiEnum):
    """Where an exchange of cells is in its life."""

    UNSPECIFIED = 0
    MATCHED = 1
    """Agreed; its window has not begun."""
    ACTIVE = 2
    """The taker owns the cells."""
    RETURNED = 3
    """Over: the cells are the giver's again."""


class BookingKind(ApiEnum):
    """What is booked in the ledger of exchanges."""

    UNSPECIFIED = 0
    AGREED = 1
    RETURNED = 2
    """The part of the price for which there was nothing any more."""


class DeviceUse(ApiEnum):
    """How a device is held."""

    UNSPECIFIED = 0
    IDLE = 1
    GUARANTEED = 2
    """By a run that holds cells of its virtual cluster."""
    OPPORTUNISTIC = 3
    """By a run that goes when somebody has a right to it."""
    KEPT = 4
    """For a job that waits for others to leave."""
    FAULTY = 5
    """By nobody, and nobody can have it."""


class PinState(ApiEnum):
    """How a pinned cell stands."""

    UNSPECIFIED = 0
    FREE = 1
    """Whole, and to be had at once."""
    IN_USE = 2
    """Guaranteed runs are inside, or part of it is kept for one."""
    FAULTY = 3
    """Not in use, and part of it cannot be had, or all of it."""


class NodeState(ApiEnum):
    """Whether a node's agent is heard."""

    UNSPECIFIED = 0
    UP = 1
    SILENT = 2
    """No sign of life. Its runs keep their devices, and nothing new is placed on it."""
    DELETED = 3
    """It is no node of the cluster any more, and in no list."""


class MemorySource(ApiEnum):
    """Where a memory cycle was read."""

    UNSPECIFIED = 0
    NVML = 1
    """The driver's count of what the process has reserved. A caching allocator hides the wave from it."""


class DependencyKind(ApiEnum):
    """How the other job must end."""

    UNSPECIFIED = 0
    AFTER_OK = 1
    AFTER_ANY = 2
    """However it ends."""
    AFTER_FAILED = 3
