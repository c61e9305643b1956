"""las: jobs that have received little service are served before those that have received much (Tiresias, NSDI 2019).

A job begins in the first queue. Once it has received a threshold of service (devices x seconds) it goes to the next queue,
behind all jobs of the queues before. So short jobs are done soon, although it is not known beforehand which are short. Within a
queue a running job continues, and those that wait are served in the order in which they came to the queue. A job that has
waited for a multiple of the time that it has run goes back to the first queue, so that no job starves.

This is the discretized two-dimensional LAS of Tiresias (section 3.2), with two queues or three. Priorities come before it.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from scheduler_service.core.messages import Remember
from scheduler_service.core.model import Job, JobSpec, ShareMode, StopReason
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.launch_time import executed_us
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.settings import Settings as EngineSettings
from scheduler_service.core.model.values import SECOND, WHOLE, Micros
from scheduler_service.core.state.queue_keys import ACTIVE
from scheduler_service.core.state.queue_order import QueueKey, QueueOrder
from scheduler_service.core.state.state import State
from scheduler_service.policies.fitgpp.victims_by_queue_order import victims_by_queue_order
from scheduler_service.policies.options import Options, own_settings
from scheduler_service.policies.queueing.overtaking import overtaking
from scheduler_service.policies.stages import Stages

NAME = "las"


class Settings(NamedTuple):
    """Settings of this policy alone."""

    threshold: float = 3600
    """Device-seconds of service after which a job leaves the first queue."""
    second_threshold: float = 0
    """Device-seconds after which it leaves the second queue for a third; 0: there are two queues."""
    patience: float = 8
    """A job that waits this many times as long as it has run goes back to the first queue; 0: never."""
    budget: int = 100
    """How often a job may be preempted by this policy."""


class Service(NamedTuple):
    """The service of a job, as the policy remembers it. Times are in microseconds, service in device-microseconds."""

    queue: int = 0
    since: Micros = 0
    """When it came to this queue, or was started in it first."""
    phase: int = 0
    """One of WAITS, RUNS, DEMOTED, STOPS."""
    ran_here: bool = False
    """It was started since it came to this queue."""
    forgotten: int = 0
    """Service that does not count, as it has been sent back to the first queue since."""
    preempted: int = 0
    """How often it was preempted by this policy."""


WAITS, RUNS, DEMOTED, STOPS = range(4)


def key(job: Job, memo: Memo | None, _settings: EngineSettings) -> QueueKey:
    """The sort key: priority, then queue. In a queue those that run come first, then those that ran there, then the others;
    each in the order in which they came."""
    of = _service(job, memo)
    return -job.priority, of.queue, of.phase in (WAITS, DEMOTED), not of.ran_here, of.since, job.id


def _service(job: Job, memo: Memo | None) -> Service:
    if memo is None:
        return Service(since=job.submitted_us)
    queue, since, phase, ran_here, forgotten, preempted = map(int, memo.value)
    return Service(queue, since, phase, bool(ran_here), forgotten, preempted)


ORDER = QueueOrder(key, Claim.REORDER, NAME, overtakes=True)


def attained_service(state: State, job: Job) -> int:
    """The service that the job has received in all, in device-microseconds. A job without devices counts as one with one."""
    now = executed_us(state.runs_of(job.id), state.cluster.clock_us) * _devices(job.launch_spec)
    if not job.spec.alternatives:
        return int(now + job.ran_us * _devices(job.spec))
    ways = job.spec.in_each_configuration()
    return int(now) + sum(ran * max(spec.demand.devices, 1) for ran, spec in zip(job.ran_in, ways, strict=False))


def _devices(spec: JobSpec) -> int | Fraction:
    """A job that asks for a part of a device by its memory alone counts as one with one: what part that is depends on where
    it runs. In its turns a job has the whole device, and only these count."""
    if spec.share is ShareMode.SLICED:
        return 1
    return Fraction(spec.gpu_fraction_ppm, WHOLE) if spec.gpu_fraction_ppm else max(spec.demand.devices, 1)


def remember(state: State, job: Job, settings: Settings) -> Iterator[Remember]:
    """Note the service of the job as it is now, and when it is to be looked at again."""
    subject = ORDER.subject(job)
    memo = state.memos.rows.get((NAME, subject))
    before = _service(job, memo)
    if job.elements is not None or (memo is None and job.state not in ACTIVE and not job.ran_us):
        return  # an array, whose elements are jobs, or a job that has never run
    after, due = _current_memo(state, job, before, settings)
    if memo is None or after != before or due != memo.due_us or memo.due:
        yield Remember(NAME, subject, tuple(map(int, after)), job.id, due)


def _current_memo(state: State, job: Job, of: Service, settings: Settings) -> tuple[Service, Micros | None]:
    """The memo of the job, and when the policy is to look again."""
    now, received, limits = state.cluster.clock_us, attained_service(state, job) - of.forgotten, _limits(settings)
    runs = state.runs_of(job.id)
    if runs and runs[0].phase.exits_soon:
        stopped = of.phase != STOPS and runs[0].stop_reason is StopReason.PREEMPTED
        return of._replace(phase=STOPS, preempted=of.preempted + stopped), None
    queue = max(of.queue, sum(received >= limit for limit in limits))
    if queue != of.queue:  # behind those that wait there, who are served before this is asked again, in the same step
        of = of._replace(queue=queue, since=now, ran_here=False)
        if runs:
            return of._replace(phase=DEMOTED), None
    if not runs:
        return _waiting(state, job, of, received, settings)
    if of.phase != RUNS:
        of = of._replace(phase=RUNS, ran_here=True, since=of.since if of.ran_here or of.phase == DEMOTED else now)
    if queue == len(limits):
        return of, None
    memo = state.memos.rows.get((NAME, ORDER.subject(job)))
    if memo is not None and memo.due_us is not None and all(run.started_us is None for run in runs):
        return of, memo.due_us  # so soon at the earliest
    return of, now + ceil((limits[queue] - received) / _devices(job.launch_spec))


def _waiting(state: State, job: Job, of: Service, received: int, settings: Settings) -> tuple[Service, Micros | None]:
    """Goes back to the first queue once it has waited for long enough since its last run ended."""
    memo, now = state.memos.rows.get((NAME, ORDER.subject(job))), state.cluster.clock_us
    waited = of.phase == WAITS
    of = of._replace(phase=WAITS)
    if not (of.queue and settings.patience and received):
        return of, None
    if memo is not None and waited and memo.due:
        return Service(since=now, forgotten=of.forgotten + received, preempted=of.preempted), None
    if memo is not None and waited and memo.due_us is not None:
        return of, memo.due_us
    return of, now + round(received / _devices(job.launch_spec) * settings.patience)


def _limits(settings: Settings) -> list[int]:
    return [round(limit * SECOND) for limit in (settings.threshold, settings.second_threshold) if limit]


def describe_queue(state: State, job: Job, settings: Settings) -> str:
    """For people: the queue of a job, and why it is in it."""
    of = _service(job, state.memos.rows.get((NAME, ORDER.subject(job))))
    received = (attained_service(state, job) - of.forgotten) / SECOND
    return f"queue {of.queue + 1} of {len(_limits(settings)) + 1} by {received:.0f} device-seconds of service"


def stages(options: Options) -> Stages:
    """The stages of the policy. Raises ValueError for a setting that is out of range."""
    settings = own_settings(Settings, options.own)
    if settings.threshold <= 0:
        raise ValueError(f"the setting threshold is {settings.threshold:g}; it must be more than 0")
    if settings.second_threshold and settings.second_threshold <= settings.threshold:
        raise ValueError(
            f"the setting second_threshold is {settings.second_threshold:g}; it must be more than threshold "
            f"({settings.threshold:g}), or 0"
        )
    if min(settings.patience, settings.budget) < 0:
        raise ValueError(f"the settings patience ({settings.patience:g}) and budget ({settings.budget}) must not be negative")

    def spares(state: State, job: Job) -> bool:
        return _service(job, state.memos.rows.get((NAME, ORDER.subject(job)))).preempted >= settings.budget

    def remember_job(state: State, job: Job) -> Iterator[Remember]:
        return remember(state, job, settings)

    victims = victims_by_queue_order(NAME, spares)
    return Stages(
        overtaking(victims.choose, remember_job),
        ORDER,
        victims,
        remember=remember_job,
        about=lambda state, job: describe_queue(state, job, settings),
    )
