"""Between the API's messages and the SDK's values. Only this, the wire and `testing` know protobuf."""

from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TypeVar

from ebb.v1 import cluster_pb2, job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from client_sdk import models
from client_sdk.errors import InvalidArgument

E = TypeVar("E", bound=IntEnum)


def _enum(kind: type[E], number: int) -> E:
    """A newer scheduler may send what this SDK has no name for: that reads as UNSPECIFIED."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def _time(message: job_pb2.Job | job_pb2.JobEvent | cluster_pb2.Node, name: str) -> datetime | None:
    if not message.HasField(name):
        return None
    value: Timestamp = getattr(message, name)
    return datetime.fromtimestamp(value.seconds, UTC) + timedelta(microseconds=value.nanos // 1000)


def _duration(value: Duration) -> timedelta:
    return timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def duration_message(value: timedelta) -> Duration:
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
        job_class=_enum(models.JobClass, message.job_class) or models.JobClass.BEST_EFFORT,
        environment=dict(message.environment),
        working_directory=message.working_directory or None,
        grace_period=_duration(message.grace_period) if message.HasField("grace_period") else None,
    )


def spec_message(value: models.JobSpec) -> job_pb2.JobSpec:
    """Raises InvalidArgument where a value does not fit into its field at all; the rules are the scheduler's to check."""
    try:
        return job_pb2.JobSpec(
            name=value.name,
            job_class=job_pb2.JobClass.Name(value.job_class),
            command=value.command,
            environment=value.environment,
            working_directory=value.working_directory or "",
            resources=resources_message(value.resources),
            grace_period=None if value.grace_period is None else duration_message(value.grace_period),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"the job cannot be sent: {error}") from error


def job(message: job_pb2.Job) -> models.Job:
    return models.Job(
        id=message.id,
        spec=spec(message.spec),
        user=message.user,
        state=_enum(models.JobState, message.state),
        reason=_enum(models.JobReason, message.reason),
        reason_detail=message.reason_detail,
        cause_job_id=message.cause_job_id or None,
        run=message.run,
        node=message.node or None,
        devices=tuple(message.devices),
        submit_time=_time(message, "submit_time"),
        start_time=_time(message, "start_time"),
        end_time=_time(message, "end_time"),
        exit_code=message.exit_code,
        exit_signal=message.exit_signal,
        preempted_for_trial=message.preempted_for_trial,
        cancel_requested=message.cancel_requested,
        log_path=message.log_path or None,
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
        grace_period=_duration(message.grace_period),
        score=message.score,
        preempted_for_trial=message.preempted_for_trial,
        sufficient=message.sufficient,
        chosen=message.chosen,
    )


def _decision(message: job_pb2.PreemptionDecision) -> models.Decision:
    return models.Decision(
        trial_job_id=message.trial_job_id,
        node=message.node,
        demand=resources(message.demand),
        rule=message.rule,
        s=message.s,
        cap=message.cap,
        max_size=message.max_size,
        max_grace_period=_duration(message.max_grace_period),
        considered=message.considered,
        candidates=tuple(map(_candidate, message.candidates)),
    )


def event(message: job_pb2.JobEvent) -> models.JobEvent:
    return models.JobEvent(
        job_id=message.job_id,
        time=_time(message, "time"),
        kind=_enum(models.JobEventKind, message.kind),
        run=message.run,
        node=message.node or None,
        reason=_enum(models.JobReason, message.reason),
        cause_job_id=message.cause_job_id or None,
        exit_code=message.exit_code,
        exit_signal=message.exit_signal,
        text=message.text,
        decision=_decision(message.decision) if message.HasField("decision") else None,
        commit_no=message.commit_no,
    )


def node(message: cluster_pb2.Node) -> models.Node:
    holders = {group.device: tuple(group.job_ids) for group in message.share_groups}
    return models.Node(
        name=message.name,
        state=_enum(models.NodeState, message.state),
        capacity=resources(message.capacity),
        free=resources(message.free),
        earmarked=resources(message.earmarked),
        levels=tuple(message.levels),
        devices=tuple(
            models.Device(
                index=device.index,
                uuid=device.uuid,
                model=device.model,
                memory_mib=device.memory_mib,
                path=tuple(device.path),
                job_ids=holders.get(device.index, ()),
            )
            for device in message.devices
        ),
        address=message.address,
        agent_version=message.agent_version,
        state_time=_time(message, "state_time"),
    )
