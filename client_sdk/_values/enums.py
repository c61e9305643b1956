"""Enums of the API: states, reasons, kinds and modes. `models` exports them to users."""

from enum import IntEnum


class ApiEnum(IntEnum):
    """Base of the API's enums. Formatted as its name; in JSON and in arithmetic it is its number in the API."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


class JobClass(ApiEnum):
    """FitGpp's two classes of jobs."""

    UNSPECIFIED = 0
    TRIAL = 1
    """Must start now; best-effort jobs may be preempted for it."""
    BEST_EFFORT = 2
    """Runs when there is room; may be preempted, and then resumes from its checkpoint."""


class JobState(ApiEnum):
    """The state of a job. `JobReason` says why it is in that state."""

    UNSPECIFIED = 0
    QUEUED = 1
    """Waits for resources; also a preempted job that waits to resume."""
    STARTING = 2
    """Placed; its node has not yet reported that the process runs."""
    RUNNING = 3
    STOPPING = 4
    """Was told to stop and is within its grace period."""
    UNREACHABLE = 5
    """Its node is silent. The job keeps its devices and may still be running."""
    SUCCEEDED = 6
    FAILED = 7
    CANCELLED = 8
    SUSPENDED = 9
    """Suspended by a user: it saved its work and exited, and does not run again until it is resumed."""
    TIMED_OUT = 10
    """Ended because it exceeded its time limit."""

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
    """QUEUED: another job is ahead of it in its queue."""
    NO_ROOM = 2
    """QUEUED: first in its queue; no node has enough unallocated resources now."""
    TOO_LARGE = 3
    """QUEUED: no node of the cluster is large enough, even when empty."""
    WAITING_FOR_VICTIMS = 4
    """QUEUED trial: runs are being preempted for it, and it starts once they have exited."""
    NOTHING_TO_PREEMPT = 5
    """QUEUED, for a job that may preempt others, such as a trial: preempting all of them would not make room."""
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
    """FAILED: the process disappeared, and its exit status is unknown."""
    YIELDED = 14
    """QUEUED: it saved its work and exited without being asked by Ebb, as when its machine is being shut down."""
    HELD = 15
    """QUEUED: a user holds it back."""
    SUSPENDED = 16
    """STOPPING or SUSPENDED: a user suspended it."""
    RESUMED = 17
    """QUEUED: a user resumed it; it continues from its checkpoint."""
    REQUEUED = 18
    """STOPPING or QUEUED: a user requeued it."""
    TIME_LIMIT = 19
    """STOPPING or TIMED_OUT: it exceeded its time limit."""
    OUT_OF_MEMORY = 20
    """FAILED: it used more host memory than it requested, or its node ran out of memory."""
    RETRYING = 21
    """QUEUED: a run failed; the retry starts no earlier than `eligible_time`."""
    FAILED_ON_SEVERAL_NODES = 22
    """FAILED: it failed on several nodes, so the job itself is at fault, and it is not retried."""
    DEPENDENCY = 23
    """QUEUED: it waits until the job in `cause_job_id` has ended."""
    DEPENDENCY_NEVER = 24
    """CANCELLED: the job in `cause_job_id` did not end as the dependency requires."""
    TASK_FAILED = 25
    """STOPPING: one of its tasks failed, and the others are being stopped."""
    GANG_NOT_READY = 26
    """STOPPING or QUEUED: not all of its tasks were ready in time."""
    NODE_DRAINED = 27
    """STOPPING or QUEUED: its node is being drained."""
    ELEMENTS_FAILED = 28
    """FAILED array: some of its elements did not succeed."""
    ARRAY_LIMIT = 29
    """QUEUED array: the maximum number of its elements is running."""
    DEVICE_FAULT = 30
    """QUEUED: a run failed on a faulty device, which does not count against the job; it starts again on another."""
    BEYOND_QUOTA = 31
    """QUEUED: the cells of its virtual cluster are in use."""
    CELLS_FAULTY = 32
    """QUEUED: its virtual cluster has free cells in its quota, but faulty devices leave no healthy cell for them."""
    RECLAIMED = 33
    """STOPPING or QUEUED: it was opportunistic, and its devices were reclaimed for the job in `cause_job_id`."""
    NEVER_IN_QUOTA = 34
    """QUEUED: its virtual cluster owns no cells in which it could ever run."""
    RESIZED = 35
    """STOPPING or QUEUED: a user resized it; it starts again with another number of tasks."""
    SAMPLED = 40
    """STOPPING or QUEUED: its run was a sample, and the job's configuration has been measured."""
    PARKED = 45
    """STOPPING: it is being parked. SUSPENDED: its run is parked. QUEUED: its run could not resume after a park."""
    MIGRATED = 46
    """STOPPING or STARTING: it is moving to another node. QUEUED: it did not start there."""
    CHECKPOINT_AWAY = 55
    """QUEUED: its checkpoint could not be fetched from the node where it ran last."""
    OUT_OF_DEVICE_MEMORY = 58
    """FAILED: it used more than its part of the memory of a device that it shared with others at the same time."""
    NODES_CLOSED = 64
    """QUEUED: no open node could take it, even when empty; `reason_detail` names the nodes that it waits for."""


class JobEventKind(ApiEnum):
    """Kind of an event of a job."""

    UNSPECIFIED = 0
    SUBMITTED = 1
    PLACED = 2
    STARTED = 3
    PREEMPTING = 4
    """Runs were preempted for this trial; `decision` has the scores."""
    PREEMPTED = 5
    """This job's run was preempted for the trial in `cause_job_id`."""
    VACATED = 6
    """The run exited after the stop signal, or was killed at the end of its grace period."""
    REQUEUED = 7
    CANCEL_REQUESTED = 8
    NODE_SILENT = 9
    NODE_RETURNED = 10
    ENDED = 11
    EARMARK_DROPPED = 12
    """The resources earmarked for this trial were released."""
    HELD = 13
    RELEASED = 14
    SUSPEND_REQUESTED = 15
    SUSPENDED = 16
    """It exited because a user suspended it."""
    RESUMED = 17
    REQUEUE_REQUESTED = 18
    UPDATED = 19
    """A user changed its priority, limits or dependencies; `text` says how."""
    TIME_LIMIT = 20
    """The run was told to stop because it reached its time limit."""
    TASK_ENDED = 21
    """One task of a gang has ended while others have not; `text` says which."""
    GANG_READY = 22
    """Every task of a gang is ready, and all were told to start."""
    DEVICE_FAULT = 23
    """A device of its run is faulty; `text` says which and why."""
    RECLAIMED = 24
    """The devices of this opportunistic job are reclaimed for the job in `cause_job_id`."""
    GUARANTEED = 25
    """It keeps running in place, and now holds cells of its virtual cluster."""
    OPPORTUNISTIC = 26
    """It keeps running in place, without its guarantee."""
    SAMPLED = 40
    """A sample measured one of the job's configurations; `text` has the result."""
    PARKED = 41
    """Its run is parked, and its devices are free for others; `text` has the measurements."""
    PARK_REFUSED = 42
    """Its run could not be parked or resumed; `text` has the reason and the consequence."""
    UNPARKED = 43
    """Its run executes again after a park; `text` has the measurements."""
    PROBED = 49
    """A change of how its run shares devices was tried, kept or undone; `text` says which, and what was measured."""
    MIGRATING = 55
    """The node to which it will move is preparing for it."""
    MIGRATED = 56
    """It runs on its new node; `text` says how long each phase took."""
    MIGRATION_FAILED = 57
    """It does not move to the other node; `text` says why."""
    RESIZED = 58
    """It runs with its new number of tasks; `text` says how long each phase of the resize took."""
    RETIMED = 59
    """The length of its turns on shared devices changed; `text` says to what, and why."""
    SET_ASIDE = 60
    """The database refused a change of this job, so the scheduler holds it until a user releases it; `text` says why."""
    STOP_OVERDUE = 61
    """It has not ended in time after a stop, and its node is told again; `text` says since when, and what to do."""
    SAVE_FAILED = 62
    """Its run failed to save a checkpoint and continues; `text` says why."""
    GRACE_TOO_SHORT = 63
    """According to measurements, stopping takes longer than its grace period; `text` says what takes the time."""
    NOTHING_TO_PREEMPT = 65
    """It starts to wait, because preempting everything that it may preempt would not make room; `text` says which running jobs
    are spared, and why."""


class Guarantee(ApiEnum):
    """The cells in which a job may run, on a site with virtual clusters."""

    UNSPECIFIED = 0
    GUARANTEED = 1
    """Cells that its virtual cluster owns; it waits for them, and no other virtual cluster can reclaim them."""
    OVERFLOW = 2
    """Cells of its virtual cluster; while these are in use, idle cells of any virtual cluster."""
    OPPORTUNISTIC = 3
    """Idle cells only; their owner can reclaim them at any time."""


class ShareMode(ApiEnum):
    """How a job shares its devices."""

    UNSPECIFIED = 0
    EXCLUSIVE = 1
    """Whole devices, alone."""
    PACKED = 2
    """Part of one device, at the same time as other jobs. Each job gets a part of the memory."""
    SLICED = 3
    """Part of the time of one device, in turns with other jobs. During its turn, a job has the whole device."""


class TurnState(ApiEnum):
    """Whether it is a job's turn on devices that it shares."""

    UNSPECIFIED = 0
    """The job takes no turns, or its node has not yet reported whose turn it is."""
    EXECUTES = 1
    """The job has its devices."""
    WAITS = 2
    """The job is parked until its turn."""


class Exit0AfterStop(ApiEnum):
    """Meaning of exit code 0 after a stop signal for preemption, suspension, reclaim, requeue or drain. A program that
    reported in EBB_DONE_FILE that its work is done has finished in any case."""

    UNSPECIFIED = 0
    STOPPED = 1
    """The program was stopped: the job runs again, or stays suspended."""
    DONE = 2
    """The program has finished its work."""


class PostingKind(ApiEnum):
    """Kind of a posting on the bulletin board of cells."""

    UNSPECIFIED = 0
    OFFER = 1
    REQUEST = 2


class PostingState(ApiEnum):
    """State of an offer or a request."""

    UNSPECIFIED = 0
    OPEN = 1
    """On the board."""
    MATCHED = 2
    """A request that got its cells, or an offer that was swapped. Any other offer stays open until its window ends."""
    WITHDRAWN = 3
    EXPIRED = 4


class ExchangeState(ApiEnum):
    """State of an exchange of cells."""

    UNSPECIFIED = 0
    MATCHED = 1
    """Agreed; its window has not started."""
    ACTIVE = 2
    """The taker owns the cells."""
    RETURNED = 3
    """Ended: the giver owns the cells again."""


class BookingKind(ApiEnum):
    """Kind of an entry in the ledger of exchanges."""

    UNSPECIFIED = 0
    AGREED = 1
    RETURNED = 2
    """The part of the price that is refunded, for cells that were returned early."""


class DeviceUse(ApiEnum):
    """How a device is used."""

    UNSPECIFIED = 0
    IDLE = 1
    GUARANTEED = 2
    """Held by a run in cells of its virtual cluster."""
    OPPORTUNISTIC = 3
    """Held by an opportunistic run; it can be reclaimed."""
    KEPT = 4
    """Earmarked for a job that waits for other runs to exit."""
    FAULTY = 5
    """Held by no run; no run can get it."""


class PinState(ApiEnum):
    """State of a pinned cell."""

    UNSPECIFIED = 0
    FREE = 1
    """All of it is available now."""
    IN_USE = 2
    """Guaranteed runs use it, or part of it is earmarked for one."""
    FAULTY = 3
    """Not in use, and partly or entirely unavailable."""


class NodeState(ApiEnum):
    """Whether the scheduler hears from a node's agent."""

    UNSPECIFIED = 0
    UP = 1
    SILENT = 2
    """No sign of life. Its runs keep their devices, and nothing new is placed on it."""
    DELETED = 3
    """No longer part of the cluster, and in no list."""


class MemorySource(ApiEnum):
    """Source of a memory cycle."""

    UNSPECIFIED = 0
    NVML = 1
    """The driver's count of the memory that the process has reserved. A caching allocator hides the cycle from it."""


class DependencyKind(ApiEnum):
    """How the other job of a dependency must end."""

    UNSPECIFIED = 0
    AFTER_OK = 1
    AFTER_ANY = 2
    """With any result."""
    AFTER_FAILED = 3
