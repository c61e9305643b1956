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
