"""Between the API's messages and the SDK's values. Only this folder, the wire and `testing` know protobuf."""

from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from operator import attrgetter
from typing import Any, SupportsIndex, overload

from ebb.v1 import job_pb2, scheduler_pb2
from google.protobuf.duration_pb2 import Duration

from client_sdk import models
from client_sdk._protobuf.call import why_not
from client_sdk._protobuf.reading import READ, read
from client_sdk._values.options import ANY_CELLS, ANY_NODE, NO_RETRY
from client_sdk.errors import InvalidArgument

_MOST = 10**9
"""More than any site has of anything that a job needs."""

_PLAIN = tuple(
    field.name
    for field in fields(models.JobSpec)
    if field.type in (str, int, bool, str | None) and field.name in job_pb2.JobSpec.DESCRIPTOR.fields_by_name
)
"""Texts, numbers and flags of a spec, which are sent as they are."""
_plain = attrgetter(*_PLAIN)
_TEXTS = tuple(field.name for field in fields(models.JobSpec) if field.type is str)
_NUMBERS = tuple(field.name for field in fields(models.JobSpec) if field.type is int)


# ---- out ---------------------------------------------------------------------------------------------------------------


@overload
def duration_message(value: timedelta) -> Duration: ...


@overload
def duration_message(value: timedelta | None) -> Duration | None: ...


def duration_message(value: timedelta | None) -> Duration | None:
    if value is None:
        return None
    return Duration(seconds=value.days * 86400 + value.seconds, nanos=value.microseconds * 1000)


def resources_message(value: models.Resources) -> job_pb2.Resources:
    """Omit the fields that are left to the scheduler, and those that are 0."""
    cpus, memory_mib, devices = value.cpus, value.memory_mib, value.devices
    return job_pb2.Resources(
        cpu_milli=None if cpus is models.DEFAULT or not (cpus or devices) else round(cpus * 1000),
        memory_mib=None if memory_mib is models.DEFAULT or not (memory_mib or devices) else memory_mib,
        devices=devices,
    )


def _exit_message(value: models.Exit0AfterStop) -> str | None:
    """Nothing where it is as it usually is, so that a spec that was sent is the spec that is answered."""
    return None if value == models.Exit0AfterStop.STOPPED else f"EXIT0_AFTER_STOP_{models.Exit0AfterStop(value).name}"


def _share_message(value: models.ShareMode) -> str | None:
    """Nothing where it is as it usually is."""
    return None if value == models.ShareMode.EXCLUSIVE else f"SHARE_MODE_{models.ShareMode(value).name}"


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
            job_class=job_pb2.JobClass.Name(value.job_class),
            command=value.command,
            # `or None`: protobuf makes room for a field that is named, also where there is nothing in it.
            environment=value.environment or None,
            inherited_environment=value.inherited or None,
            grace_period=duration_message(value.grace_period),
            time_limit=duration_message(value.time_limit),
            retry=_retry_message(value.retry),
            dependencies=tuple(map(dependency_message, value.dependencies)) or None,
            array=None if value.array is None else job_pb2.Array(size=value.array.size, at_once=value.array.at_once),
            guarantee=job_pb2.Guarantee.Name(value.guarantee) if value.virtual_cluster else None,
            exit_0_after_stop=_exit_message(value.exit_0_after_stop),
            share=_share_message(value.share),
            alternatives=tuple(map(_configuration_message, value.alternatives)) or None,
            snapshots=value.snapshots or None,
            **_needs_message(value),
            **dict(zip(_PLAIN, _plain(value), strict=True)),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"the job cannot be sent: {_unfit(value) or why_not(error)}") from error


def _needs_message(value: models.JobSpec | models.Configuration) -> dict[str, Any]:
    """Return the fields that a spec and a configuration have in common."""
    nodes = value.nodes
    return {
        "resources": resources_message(value.resources),
        "task_groups": tuple(map(_task_group_message, value.task_groups)) or None,
        "cells": _cells_message(value.cells),
        "estimate": duration_message(value.estimate),
        "nodes": None
        if nodes == ANY_NODE
        else job_pb2.NodeRequest(names=nodes.names, labels=nodes.labels, excluded=nodes.excluded),
    }


def _configuration_message(value: models.Configuration) -> job_pb2.Configuration:
    return job_pb2.Configuration(
        command=value.command,
        environment=value.environment or None,
        device_memory_mib=value.device_memory_mib,
        **_needs_message(value),
    )


def _unfit(value: models.JobSpec) -> str:
    """Which of the values that are often wrong is, which protobuf does not say."""
    for name, text in (*value.inherited.items(), *value.environment.items()):
        if not (isinstance(name, str) and isinstance(text, str)):
            return f"of the environment, {name!r} or its value {text!r} is not text; write it as a str"
    for field in _TEXTS:
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
    yield from ((name, getattr(value, name)) for name in _NUMBERS)
    yield from {"devices": value.resources.devices, "retries": value.retry.limit}.items()
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


def _cells_message(value: models.CellRequest) -> job_pb2.CellRequest | None:
    if value == ANY_CELLS:
        return None
    within = [job_pb2.Within(level=w.level, preferred=w.preferred, task_group=w.task_group) for w in value.within]
    return job_pb2.CellRequest(
        pool=value.pool,
        model=value.model,
        pin=value.pin,
        level=value.level,
        within=within,
        lazy=value.lazy,
        vacates=value.vacates,
    )


# ---- in ----------------------------------------------------------------------------------------------------------------


def resources(message: job_pb2.Resources) -> models.Resources:
    """Read omitted fields as DEFAULT, as in a spec that the scheduler has not yet filled in."""
    devices = message.devices
    cpus = message.cpu_milli / 1000 if message.HasField("cpu_milli") or not devices else models.DEFAULT
    memory_mib = message.memory_mib if message.HasField("memory_mib") or not devices else models.DEFAULT
    return models.Resources(cpus=cpus, memory_mib=memory_mib, devices=devices)


def _task_group(message: job_pb2.TaskGroup) -> models.TaskGroup:
    each = resources(message.resources)
    said = tuple(message.command) or None, message.level
    return models.TaskGroup(message.count, each.devices, each.cpus, each.memory_mib, *said)


def spec(message: job_pb2.JobSpec) -> models.JobSpec:
    return read(models.JobSpec, message, inherited=dict(message.inherited_environment))


def job(message: job_pb2.Job) -> models.Job:
    return read(models.Job, message, array_index=message.array_index if message.array_job_id else None)


READ.update({models.Resources: resources, models.TaskGroup: _task_group, models.JobSpec: spec, models.Job: job})


def dependency(message: job_pb2.Dependency) -> models.Dependency:
    return read(models.Dependency, message)


def update(message: scheduler_pb2.SchedulerWatchResponse) -> models.JobUpdate:
    return read(models.JobUpdate, message)


def event(message: job_pb2.JobEvent) -> models.JobEvent:
    return read(models.JobEvent, message)
