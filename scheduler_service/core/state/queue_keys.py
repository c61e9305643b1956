"""Which queues a job is in, and which deadlines a row has.

These are functions of a single row; the indices of the state are built from them.
"""

from enum import IntEnum
from typing import Literal, NamedTuple

from scheduler_service.core.model import Job, JobClass, JobSpec, JobState, Reason, ShareMode
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import Micros

ACTIVE = frozenset({JobState.STARTING, JobState.RUNNING, JobState.STOPPING, JobState.UNREACHABLE})
"""States of jobs with a run that has not ended, and of arrays with such elements."""
_EXCLUSIVE = ShareMode.EXCLUSIVE
_QUEUED, _TOO_LARGE, _NODES_CLOSED = JobState.QUEUED, Reason.TOO_LARGE, Reason.NODES_CLOSED


class Lane(IntEnum):
    """The kind of resources that a queued job waits for; a job that may overflow waits for both kinds of cells."""

    TRIAL = 1
    """A trial, for cells of its virtual cluster; on a site without virtual clusters, for any node."""
    BEST_EFFORT = 2
    """A best-effort job, for the same."""
    OPPORTUNISTIC = 3
    """A job of either class, for any idle cells."""


LANE = {JobClass.TRIAL: Lane.TRIAL, JobClass.BEST_EFFORT: Lane.BEST_EFFORT}
"""Lane of a job that may run in cells of its virtual cluster, or on any node."""
OWN_LANES = (Lane.TRIAL, Lane.BEST_EFFORT)
"""Lanes of jobs that wait for cells of their virtual cluster, or for any node."""


class Named(NamedTuple):
    """Properties of the cells that a job waits for. Jobs with equal ones may have the same cells, and wait for each other."""

    pool: str
    model: str
    pin: str
    device_memory_mib: int = 0


ANY = Named("", "", "")
_ANYWHERE = (ANY,)


class Deadline(IntEnum):
    """The kind of a deadline, with the field of the row that contains its time."""

    EARMARK = 1
    """earmark.deadline_us"""
    ELIGIBLE = 2
    """job.eligible_us"""
    TIME_LIMIT = 3
    """job.limit_us"""
    GANG_START = 4
    """job.start_by_us"""
    GUARD = 5
    """run.guarded_us"""
    WINDOW = 6
    """exchange.lot.begin_us, then end_us"""
    POSTING_EXPIRES = 7
    """exchange_posting.expires_us"""
    POSTING_BEGINS = 8
    """exchange_posting.begins_us"""
    IDLE = 9
    """idle_cells.due_us"""
    MEMO = 10
    """memo.due_us"""
    OPERATION = 11
    """operation.deadline_us"""
    STOP_OVERDUE = 12
    """run.due_us"""
    SAMPLE = 40
    """job.sampling.until_us"""


ExchangeDeadline = Literal[Deadline.WINDOW, Deadline.POSTING_EXPIRES, Deadline.POSTING_BEGINS, Deadline.IDLE]
"""Deadlines of the cell exchange."""
DUE = (Deadline.ELIGIBLE, Deadline.TIME_LIMIT, Deadline.GANG_START, Deadline.SAMPLE)
"""Deadlines of a job."""
Due = tuple[Micros | None, Micros | None, Micros | None, Micros | None]
NOT_DUE: Due = (None, None, None, None)
PAUSES = "the pause after its last run is not over"
"""The reason why a job is not eligible, if no better one is known."""


def deadlines_of(job: Job) -> Due:
    """Return the times of the job's deadlines, in the order of DUE. A job that is set aside has none."""
    if job.set_aside:
        return NOT_DUE
    return job.eligible_us, job.limit_us, job.start_by_us, job.sampling.until_us if job.sampling else None


def is_in_queue(job: Job) -> bool:
    """Whether the job is in a queue. A job that no node can take waits outside the queues, where it blocks no other job, until
    a node that can take it joins or opens."""
    if job.state is not _QUEUED or job.held or job.eligible_us is not None or job.waits_for:
        return False
    if job.reason is _TOO_LARGE or job.reason is _NODES_CLOSED:
        return False
    return job.elements is None or startable(job)


def may_do_without_devices(spec: JobSpec) -> bool:
    """Whether a job may start even if no device is idle: it needs none in one of its configurations, or may join others on a
    device in use."""
    return not spec.demand.devices or bool(spec.alternatives) or spec.share is not _EXCLUSIVE


def startable(job: Job) -> bool:
    """Whether one more element of the array may start."""
    array, elements = job.spec.array, job.elements
    if array is None or elements is None:
        return False
    return elements.begun < array.size and (not array.at_once or elements.live < array.at_once)


def unsampled_configurations(job: Job) -> tuple[int, ...]:
    """Return the configurations without an estimate of the run time that were not tried either; none for arrays and their
    elements, and for jobs with only one configuration."""
    spec = job.spec
    if not spec.alternatives or job.elements is not None or job.array_job:
        return ()
    known = {part.configuration for part in job.estimates}
    each = (spec.estimate_us, *(other.estimate_us for other in spec.alternatives))
    return tuple(number for number, estimate in enumerate(each) if not estimate and number not in known)


_TRIAL, _BEST_EFFORT, _TRIAL_OR_IDLE, _BEST_EFFORT_OR_IDLE = (
    (Lane.TRIAL,),
    (Lane.BEST_EFFORT,),
    (Lane.TRIAL, Lane.OPPORTUNISTIC),
    (Lane.BEST_EFFORT, Lane.OPPORTUNISTIC),
)
_IDLE = (Lane.OPPORTUNISTIC,)


def lanes_of(job: Job) -> tuple[Lane, ...]:
    """Return the lanes of a queued job."""
    spec = job.spec
    trial = spec.job_class is JobClass.TRIAL
    if spec.guarantee is Guarantee.GUARANTEED or not spec.vc:
        return _TRIAL if trial else _BEST_EFFORT
    if spec.guarantee is Guarantee.OPPORTUNISTIC:
        return _IDLE
    return _TRIAL_OR_IDLE if trial else _BEST_EFFORT_OR_IDLE


def own_lane(job: Job) -> Lane:
    """Return the lane of the job's class."""
    return LANE[job.spec.job_class]


def named_by(job: Job) -> Named:
    """Return what the job names in its first or only configuration."""
    spec = job.spec
    return tuple.__new__(Named, (*spec.cells[:3], max(spec.device_memory_mib, spec.gpu_memory_mib)))


def queues_in(lane: Lane, job: Job) -> tuple[Named, ...]:
    """Return the job's queues in the lane: one for each `Named` of its configurations. All opportunistic jobs are in one queue,
    since any cell may do, and so are all jobs of a lane on a site without virtual clusters."""
    if lane is Lane.OPPORTUNISTIC or not job.spec.vc:
        return _ANYWHERE
    if not job.spec.alternatives:
        return (named_by(job),)
    return tuple(dict.fromkeys(map(named_by, job.in_each_configuration())))
