"""Between the API's messages and the SDK's values. Only this, the wire and `testing` know protobuf."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import SupportsIndex, TypeVar, overload

from ebb.v1 import job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from client_sdk import models
from client_sdk._protobuf import convert_cells
from client_sdk._protobuf.call import why_not
from client_sdk._values.options import ANY_CELLS, NO_RETRY
from client_sdk.errors import InvalidArgument

E = TypeVar("E", bound=IntEnum)
_MOST = 10**9
"""More than any site has of anything that a job needs."""

_NO_TIME = timedelta(0)


def enum(kind: type[E], number: int) -> E:
    """A newer scheduler may send what this SDK has no name for: that reads as UNSPECIFIED."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def time(message: Message, name: str) -> datetime | None:
    if not message.HasField(name):
        return None
    value: Timestamp = getattr(message, name)
    return datetime.fromtimestamp(value.seconds, UTC) + timedelta(microseconds=value.nanos // 1000)


def duration(value: Duration) -> timedelta:
    return timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def given(message: Message, name: str) -> timedelta | None:
    return duration(getattr(message, name)) if message.HasField(name) else None


@overload
def duration_message(value: timedelta) -> Duration: ...


@overload
def duration_message(value: timedelta | None) -> Duration | None: ...


def duration_message(value: timedelta | None) -> Duration | None:
    if value is None:
        return None
    return Duration(seconds=value.days * 86400 + value.seconds, nanos=value.microseconds * 1000)


def resources(message: job_pb2.Resources) -> models.Resources:
    return models.Resources(cpus=message.cpu_milli / 1000, memory_mib=message.memory_mib, devices=message.devices)


def resources_message(value: models.Resources) -> job_pb2.Resources:
    return job_pb2.Resources(cpu_milli=round(value.cpus * 1000), memory_mib=value.memory_mib, devices=value.devices)


def spec(message: job_pb2.JobSpec) -> models.JobSpec:
    return models.JobSpec(
        command=tuple(message.command),
        resources=resources(message.resources),
        name=message.name,
        job_class=enum(models.JobClass, message.job_class) or models.JobClass.BEST_EFFORT,
        environment=dict(message.environment),
        working_directory=message.working_directory or None,
        grace_period=given(message, "grace_period"),
        priority=message.priority,
        time_limit=given(message, "time_limit"),
        estimate=given(message, "estimate"),
        retry=_retry(message.retry) if message.HasField("retry") else NO_RETRY,
        task_groups=tuple(map(_task_group, message.task_groups)),
        dependencies=tuple(dependency(each) for each in message.dependencies),
        array=models.Array(message.array.size, message.array.at_once) if message.HasField("array") else None,
        virtual_cluster=message.virtual_cluster,
        guarantee=enum(models.Guarantee, message.guarantee) or models.Guarantee.GUARANTEED,
        cells=convert_cells.cells(message.cells) if message.HasField("cells") else ANY_CELLS,
        exit_0_after_stop=enum(models.Exit0AfterStop, message.exit_0_after_stop) or models.Exit0AfterStop.STOPPED,
        inherited=dict(message.inherited_environment),
        redacted=tuple(message.redacted),
        project=message.project,
    )


def _exit_message(value: models.Exit0AfterStop) -> str | None:
    """Nothing where it is as it usually is, so that a spec that was sent is the spec that is answered."""
    return None if value == models.Exit0AfterStop.STOPPED else f"EXIT0_AFTER_STOP_{models.Exit0AfterStop(value).name}"


def _retry(message: job_pb2.Retry) -> models.Retry:
    return models.Retry(message.limit, tuple(message.exit_codes), tuple(message.exit_signals))


def _task_group(message: job_pb2.TaskGroup) -> models.TaskGroup:
    each = resources(message.resources)
    said = tuple(message.command) or None, message.level
    return models.TaskGroup(message.count, each.devices, each.cpus, each.memory_mib, *said)


def dependency(message: job_pb2.Dependency) -> models.Dependency:
    return models.Dependency(message.job_id, enum(models.DependencyKind, message.kind) or models.DependencyKind.AFTER_OK)


def dependency_message(value: models.Dependency) -> job_pb2.Dependency:
    return job_pb2.Dependency(job_id=value.job_id, kind=job_pb2.DependencyKind.Name(value.kind))


def spec_message(value: models.JobSpec) -> job_pb2.JobSpec:
    """Raises InvalidArgument where a value does not fit into its field at all, and for a spec that is not whole; the rules are
    the scheduler's to check."""
    if value.redacted:
        raise InvalidArgument(
            f"this spec lacks what only the owner of its job may see ({', '.join(value.redacted)}): make one of your own"
        )
    try:
        return job_pb2.JobSpec(
            name=value.name,
            job_class=job_pb2.JobClass.Name(value.job_class),
            command=value.command,
            # `or None`: protobuf makes room for a field that is named, also where there is nothing in it.
            environment=value.environment or None,
            inherited_environment=value.inherited or None,
            working_directory=value.working_directory or "",
            resources=resources_message(value.resources),
            grace_period=duration_message(value.grace_period),
            priority=value.priority,
            time_limit=duration_message(value.time_limit),
            estimate=duration_message(value.estimate),
            retry=_retry_message(value.retry),
            task_groups=tuple(map(_task_group_message, value.task_groups)) or None,
            dependencies=tuple(map(dependency_message, value.dependencies)) or None,
            array=None if value.array is None else job_pb2.Array(size=value.array.size, at_once=value.array.at_once),
            virtual_cluster=value.virtual_cluster,
            guarantee=job_pb2.Guarantee.Name(value.guarantee) if value.virtual_cluster else None,
            cells=convert_cells.cells_message(value.cells),
            exit_0_after_stop=_exit_message(value.exit_0_after_stop),
            project=value.project,
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"the job cannot be sent: {_unfit(value) or why_not(error)}") from error


def _unfit(value: models.JobSpec) -> str:
    """Which of the values that are often wrong is, which protobuf does not say."""
    for name, text in (*value.inherited.items(), *value.environment.items()):
        if not (isinstance(name, str) and isinstance(text, str)):
            return f"of the environment, {name!r} or its value {text!r} is not text; write it as a str"
    for field in ("name", "project", "virtual_cluster"):
        if not isinstance(text := getattr(value, field), str):
            return f"the {field} {text!r} is not text"
    for field, number in _whole_numbers(value):
        if not isinstance(number, SupportsIndex):
            return f"{field}={number!r} is no whole number"
    for field in ("cpus", "memory_mib", "devices"):
        if isinstance(amount := getattr(value.resources, field), int | float) and abs(amount) > _MOST:
            return f"{amount:g} is too much for {field}"
    return ""


def _whole_numbers(value: models.JobSpec) -> Iterator[tuple[str, object]]:
    """With the names that they have in `JobOptions`."""
    yield from {"priority": value.priority, "devices": value.resources.devices, "retries": value.retry.limit}.items()
    if value.array is not None:
        yield from {"array": value.array.size, "array_at_once": value.array.at_once}.items()
    for group in value.task_groups:
        yield from {"count": group.count, "devices": group.devices}.items()
    for other in value.dependencies:
        yield other.kind.name.lower(), other.job_id


def _retry_message(value: models.Retry) -> job_pb2.Retry | None:
    if value == NO_RETRY:
        return None
    return job_pb2.Retry(limit=value.limit, exit_codes=value.exit_codes, exit_signals=value.exit_signals)


def _task_group_message(value: models.TaskGroup) -> job_pb2.TaskGroup:
    return job_pb2.TaskGroup(
        count=value.count, resources=resources_message(value.resources), command=value.command or (), level=value.level
    )


def job(message: job_pb2.Job) -> models.Job:
    return models.Job(
        id=message.id,
        spec=spec(message.spec),
        user=message.user,
        state=enum(models.JobState, message.state),
        reason=enum(models.JobReason, message.reason),
        reason_detail=message.reason_detail,
        cause_job_id=message.cause_job_id or None,
        run=message.run,
        node=message.node or None,
        devices=tuple(message.devices),
        submit_time=time(message, "submit_time"),
        start_time=time(message, "start_time"),
        end_time=time(message, "end_time"),
        exit_code=message.exit_code,
        exit_signal=message.exit_signal,
        preempted_for_trial=message.preempted_for_trial,
        cancel_requested=message.cancel_requested,
        log_path=message.log_path or None,
        priority=message.priority,
        time_limit=given(message, "time_limit"),
        run_time=given(message, "run_time") or _NO_TIME,
        held=message.held,
        suspend_requested=message.suspend_requested,
        retries=message.retries,
        eligible_time=time(message, "eligible_time"),
        tasks=tuple(map(task, message.tasks)),
        array_job_id=message.array_job_id or None,
        array_index=message.array_index if message.array_job_id else None,
        array=_array_status(message.array) if message.HasField("array") else None,
        guaranteed=message.guaranteed,
    )


def task(message: job_pb2.Task) -> models.Task:
    return models.Task(
        rank=message.rank,
        node=message.node,
        devices=tuple(message.devices),
        resources=resources(message.resources),
        log_path=message.log_path or None,
        guaranteed=message.guaranteed,
        program=message.program or None,
    )


def _array_status(message: job_pb2.ArrayStatus) -> models.ArrayStatus:
    return models.ArrayStatus(
        size=message.size,
        pending=message.pending,
        live=message.live,
        succeeded=message.succeeded,
        failed=message.failed,
    )


def update(message: scheduler_pb2.SchedulerWatchResponse) -> models.JobUpdate:
    return models.JobUpdate(snapshot=message.snapshot, jobs=tuple(map(job, message.jobs)), commit_no=message.commit_no)


def _candidate(message: job_pb2.Candidate) -> models.Candidate:
    return models.Candidate(
        job_id=message.job_id,
        run=message.run,
        node=message.node,
        demand=resources(message.demand),
        node_free=resources(message.node_free),
        size=message.size,
        grace_period=duration(message.grace_period),
        score=message.score,
        preempted_for_trial=message.preempted_for_trial,
        sufficient=message.sufficient,
        chosen=message.chosen,
    )


def decision(message: job_pb2.PreemptionDecision) -> models.Decision:
    return models.Decision(
        trial_job_id=message.trial_job_id,
        node=message.node,
        demand=resources(message.demand),
        rule=message.rule,
        s=message.s,
        cap=message.cap,
        max_size=message.max_size,
        max_grace_period=duration(message.max_grace_period),
        considered=message.considered,
        candidates=tuple(map(_candidate, message.candidates)),
    )


def event(message: job_pb2.JobEvent) -> models.JobEvent:
    return models.JobEvent(
        job_id=message.job_id,
        time=time(message, "time"),
        kind=enum(models.JobEventKind, message.kind),
        run=message.run,
        node=message.node or None,
        reason=enum(models.JobReason, message.reason),
        cause_job_id=message.cause_job_id or None,
        exit_code=message.exit_code,
        exit_signal=message.exit_signal,
        text=message.text,
        decision=decision(message.decision) if message.HasField("decision") else None,
        commit_no=message.commit_no,
    )
