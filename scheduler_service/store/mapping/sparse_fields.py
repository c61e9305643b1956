"""Fields of a job that rarely differ from their default: stored as one JSON object that holds only those that do.

Most jobs have no such field, and pay nothing for it. Each field that has a default and no column of its own is stored like
this: a new field of `JobSpec` or `Job` needs nothing here, unless JSON has another form for its value.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple

from scheduler_service.core.model import (
    Array,
    Configuration,
    Dependency,
    DependencyKind,
    Elements,
    Exit0AfterStop,
    Job,
    JobSpec,
    NodeSelector,
    Reason,
    Retry,
    ShareMode,
    TaskGroup,
)
from scheduler_service.core.model.estimates import Estimate, Reading, SampledMemory, Sampling, Source
from scheduler_service.core.model.profiles import Profile
from scheduler_service.core.model.saves import LaunchSave, SaveOutcome, SaveResult
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest, Guarantee, Within
from scheduler_service.core.model.values import Vector
from scheduler_service.store.mapping.records import Record
from scheduler_service.store.schema.jobs import job


class _Field(NamedTuple):
    name: str
    usual: Any
    back: Callable[[Any], Any] | None
    """Makes the value from what JSON has; None: JSON has the value itself."""


def _dependencies(found: list[Any]) -> tuple[Dependency, ...]:
    return tuple(Dependency(job_id, DependencyKind(kind)) for job_id, kind in found)


def _gang(found: list[Any]) -> tuple[TaskGroup, ...]:
    return tuple(TaskGroup(size, Vector(*demand), tuple(command)) for size, demand, command in found)


def _retry(found: list[Any]) -> Retry:
    return Retry(found[0], tuple(found[1]), tuple(found[2]))


def _cells(found: list[Any]) -> CellRequest:
    pool, model, pin, levels, within, *rest = found
    return CellRequest(pool, model, pin, tuple(levels), tuple(Within(*one) for one in within), *rest)


def _pairs(found: list[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in found)


def _nodes(found: list[Any]) -> NodeSelector:
    names, labels, excluded = found
    return NodeSelector(tuple(names), _pairs(labels), tuple(excluded))


def _configuration(found: list[Any]) -> Configuration:
    demand, gang, cells, device_memory_mib, nodes, command, environment, estimate_us = found
    where = _cells(cells), device_memory_mib, _nodes(nodes)
    return Configuration(Vector(*demand), _gang(gang), *where, tuple(command), _pairs(environment), estimate_us)


def _estimates(found: list[Any]) -> tuple[Estimate, ...]:
    return tuple(Estimate(configuration, Source(source), *rest) for configuration, source, *rest in found)


def _sampling(found: list[Any]) -> Sampling:
    share_ppm, most_us, until_us, readings, *rest = found
    return Sampling(share_ppm, most_us, until_us, tuple(Reading(*one) for one in readings), *rest)


def shared_pairs(found: list[Any]) -> tuple[tuple[str, str], ...]:
    """Pairs of names and values, such as of an environment."""
    return _intern_pairs(_pairs(found)) if found else ()


def _launch_save(found: list[Any]) -> LaunchSave:
    run, (outcome, *rest) = found
    return LaunchSave(run, SaveResult(SaveOutcome(outcome), *rest))


@lru_cache(4096)
def _intern_pairs(found: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """One object for all jobs that have the same, which are many."""
    return found


def _seldom(kind: type[Job | JobSpec], back: Mapping[str, Callable[[Any], Any]]) -> tuple[_Field, ...]:
    """The fields without a column; the default of each is the value that is not written. `back`: see `_Field`."""
    kept = [field for field in fields(kind) if field.default is not MISSING and field.name not in job.columns]
    assert back.keys() <= {field.name for field in kept}, "a field that is made from JSON is not kept as JSON"
    return tuple(_Field(field.name, field.default, back.get(field.name)) for field in kept)


_SPEC = _seldom(
    JobSpec,
    {
        "retry": _retry,
        "gang": _gang,
        "dependencies": _dependencies,
        "array": lambda found: Array(*found),
        "guarantee": Guarantee,
        "cells": _cells,
        "exit_0_after_stop": Exit0AfterStop,
        "inherited": shared_pairs,
        "nodes": _nodes,
        "alternatives": lambda found: tuple(map(_configuration, found)),
        "snapshots": tuple,
        "share": ShareMode,
        "memory_left": tuple,
    },
)
_JOB = _seldom(
    Job,
    {
        **dict.fromkeys(("task_nodes", "failed_on", "avoid", "ran_in", "node_faults_on"), tuple),
        "verdict": Reason,
        "waits_for": _dependencies,
        "elements": lambda found: Elements(*found),
        "estimates": _estimates,
        "sampling": _sampling,
        **dict.fromkeys(("share_now", "share_next", "submitted_share"), ShareMode),
        "profile": lambda found: Profile(*found),
        "last_save": _launch_save,
        "sampled_memory": lambda found: tuple(starmap(SampledMemory, found)),
    },
)


def of_job(job: Job) -> Record | None:
    return _write(job, _JOB)


def of_spec(spec: JobSpec) -> Record | None:
    return _write(spec, _SPEC)


def to_job(found: Mapping[str, Any] | None) -> Record:
    """Arguments of `Job`."""
    return _read_fields(found, _JOB)


def to_spec(found: Mapping[str, Any] | None) -> Record:
    """Arguments of `JobSpec`."""
    return _read_fields(found, _SPEC)


def _write(row: object, seldom: tuple[_Field, ...]) -> Record | None:
    values = row.__dict__
    return {name: values[name] for name, usual, _ in seldom if values[name] != usual} or None


def _read_fields(found: Mapping[str, Any] | None, seldom: tuple[_Field, ...]) -> Record:
    if not found:
        return {}
    return {name: back(found[name]) if back else found[name] for name, _, back in seldom if name in found}
