"""Reasons for the states of jobs."""

from client_sdk._values.enums import ApiEnum


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
