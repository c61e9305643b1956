"""What of a job is seldom other than usual: kept together, as one JSON object that holds only what is not as usual.

Most jobs have none of it, so that they cost nothing for it. Each field has a name, the value that is not written, and the
way back from JSON.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from scheduler_service.core.model import (
    Array,
    Dependency,
    DependencyKind,
    Elements,
    Exit0AfterStop,
    Job,
    JobSpec,
    Reason,
    Retry,
    TaskGroup,
)
from scheduler_service.core.model.values import Vector
from scheduler_service.core.model.virtual_clusters import CellRequest, Guarantee, Within
from scheduler_service.store.mapping.records import Record


class _Field(NamedTuple):
    name: str
    usual: Any
    back: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _dependencies(found: list[Any]) -> tuple[Dependency, ...]:
    return tuple(Dependency(job_id, DependencyKind(kind)) for job_id, kind in found)


def _gang(found: list[Any]) -> tuple[TaskGroup, ...]:
    return tuple(TaskGroup(size, Vector(*demand), tuple(command)) for size, demand, command in found)


def _retry(found: list[Any]) -> Retry:
    return Retry(found[0], tuple(found[1]), tuple(found[2]))


def _cells(found: list[Any]) -> CellRequest:
    pool, model, pin, levels, within, *rest = found
    return CellRequest(pool, model, pin, tuple(levels), tuple(Within(*one) for one in within), *rest)


@lru_cache(4096)
def _pairs(found: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """One object for all jobs that inherited the same, which are many."""
    return found


_SPEC = (
    _Field("priority", 0, _same),
    _Field("time_limit_us", 0, _same),
    _Field("estimate_us", 0, _same),
    _Field("retry", Retry(), _retry),
    _Field("gang", (), _gang),
    _Field("dependencies", (), _dependencies),
    _Field("array", None, lambda found: Array(*found)),
    _Field("guarantee", Guarantee.GUARANTEED, Guarantee),
    _Field("cells", CellRequest(), _cells),
    _Field("exit_0_after_stop", Exit0AfterStop.STOPPED, Exit0AfterStop),
    _Field("inherited", (), lambda found: _pairs(tuple((name, value) for name, value in found))),
)
_JOB = (
    _Field("priority", 0, _same),
    _Field("time_limit_us", 0, _same),
    _Field("held", False, _same),
    _Field("suspend_requested", False, _same),
    _Field("retries", 0, _same),
    _Field("eligible_us", None, _same),
    _Field("ran_us", 0, _same),
    _Field("limit_us", None, _same),
    _Field("start_by_us", None, _same),
    _Field("rendezvous", "", _same),
    _Field("task_nodes", (), tuple),
    _Field("failed_on", (), tuple),
    _Field("avoid", (), tuple),
    _Field("verdict", Reason.NONE, Reason),
    _Field("left", False, _same),
    _Field("waits_for", (), _dependencies),
    _Field("elements", None, lambda found: Elements(*found)),
)


def of_job(job: Job) -> Record | None:
    return _write(job, _JOB)


def of_spec(spec: JobSpec) -> Record | None:
    return _write(spec, _SPEC)


def to_job(found: Mapping[str, Any] | None) -> Record:
    """Arguments of `Job`."""
    return _read(found, _JOB)


def to_spec(found: Mapping[str, Any] | None) -> Record:
    """Arguments of `JobSpec`."""
    return _read(found, _SPEC)


def _write(row: object, fields: tuple[_Field, ...]) -> Record | None:
    values = row.__dict__
    return {name: values[name] for name, usual, _ in fields if values[name] != usual} or None


def _read(found: Mapping[str, Any] | None, fields: tuple[_Field, ...]) -> Record:
    if not found:
        return {}
    return {name: back(found[name]) for name, _, back in fields if name in found}
