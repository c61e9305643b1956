"""Kinds of the events that make up the story of a job."""

from client_sdk._values.enums import ApiEnum


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
