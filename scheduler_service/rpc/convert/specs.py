"""Conversion of job specs between the core and ebb.v1."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from ebb.v1 import job_pb2

from scheduler_service.core.model import (
    Array,
    Configuration,
    Dependency,
    DependencyKind,
    Exit0AfterStop,
    JobClass,
    JobSpec,
    NodeSelector,
    Retry,
    ShareMode,
    TaskGroup,
)
from scheduler_service.core.model.configurations import ANY_NODE
from scheduler_service.core.model.tenants.virtual_clusters import CellRequest, Guarantee, Within
from scheduler_service.core.model.values import UNSET, ZERO, Micros, Vector, add
from scheduler_service.rpc.convert.values import duration_in, duration_out, message_of, vector_in, vector_out

_PLAIN = tuple(
    field.name
    for field in fields(JobSpec)
    if field.type in (str, int, bool) and field.name in job_pb2.JobSpec.DESCRIPTOR.fields_by_name
)
"""Texts, numbers and flags, which have the same name and the same value in the core and in the API."""
_plain: Callable[[JobSpec | job_pb2.JobSpec], tuple[Any, ...]] = attrgetter(*_PLAIN)


def spec_in(spec: job_pb2.JobSpec, default_grace_us: Micros) -> JobSpec:
    """Most jobs say little of what can be said, and every Submit passes here: what is not said is not looked at."""
    more: dict[str, Any] = {}
    demand = _demand_in(spec, more)
    if spec.job_class:
        more["job_class"] = JobClass(spec.job_class)
    if spec.inherited_environment:
        more["inherited"] = _intern_inherited(tuple(sorted(spec.inherited_environment.items())))
    if spec.HasField("time_limit"):
        more["time_limit_us"] = duration_in(spec.time_limit)
    if spec.HasField("retry"):
        more["retry"] = Retry(spec.retry.limit, tuple(sorted(spec.retry.exit_codes)), tuple(sorted(spec.retry.exit_signals)))
    if spec.dependencies:
        more["dependencies"] = dependencies_in(spec.dependencies)
    if spec.HasField("array"):
        more["array"] = Array(spec.array.size, spec.array.at_once)
    if spec.guarantee:
        more["guarantee"] = Guarantee(spec.guarantee)
    if spec.exit_0_after_stop:
        more["exit_0_after_stop"] = Exit0AfterStop(spec.exit_0_after_stop)
    if spec.share or spec.gpu_fraction_ppm or spec.gpu_memory_mib:
        more["share"] = share_in(spec)
    if spec.snapshots:
        more["snapshots"] = tuple(spec.snapshots)
    if spec.virtual_cluster:
        more["vc"] = spec.virtual_cluster
    if spec.alternatives:
        more["alternatives"] = tuple(map(_configuration_in, spec.alternatives))
    return JobSpec(
        command=tuple(spec.command),
        demand=demand,
        grace_us=duration_in(spec.grace_period) if spec.HasField("grace_period") else default_grace_us,
        **dict(zip(_PLAIN, _plain(spec), strict=True)),
        **more,
    )


def share_in(spec: job_pb2.JobSpec) -> ShareMode:
    """Return the share mode. If unset, it follows from the request: sliced for a GPU fraction, packed for GPU memory alone."""
    if spec.share:
        return ShareMode(spec.share)
    if spec.gpu_fraction_ppm:
        return ShareMode.SLICED
    return ShareMode.PACKED if spec.gpu_memory_mib else ShareMode.EXCLUSIVE


@lru_cache(4096)
def _intern_inherited(found: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """One object for all jobs that inherited the same, which are many."""
    return found


_Asking = job_pb2.JobSpec | job_pb2.Configuration
"""A message that says how a job can run: fields with the same name mean the same in both."""


def _configuration_in(said: job_pb2.Configuration) -> Configuration:
    more: dict[str, Any] = {}
    demand = _demand_in(said, more)
    return Configuration(demand, command=tuple(said.command), device_memory_mib=said.device_memory_mib, **more)


def _demand_in(said: _Asking, more: dict[str, Any]) -> Vector:
    """Return the resources of all tasks together; adds the other fields of the configuration to `more`."""
    if said.environment:
        more["environment"] = tuple(sorted(said.environment.items()))
    if said.HasField("estimate"):
        more["estimate_us"] = duration_in(said.estimate)
    if said.HasField("nodes"):
        asked = said.nodes
        more["nodes"] = NodeSelector(
            tuple(sorted(asked.names)), tuple(sorted(asked.labels.items())), tuple(sorted(asked.excluded))
        )
    if said.HasField("cells") or said.task_groups:
        more["cells"] = _cells_in(said)
    if not said.task_groups:
        return _need_in(said.resources)
    gang = more["gang"] = tuple(TaskGroup(g.count, _need_in(g.resources), tuple(g.command)) for g in said.task_groups)
    demand = ZERO
    for group in gang:
        demand = add(demand, Vector(*(part * group.size for part in group.demand)))
    if any(UNSET in group.demand for group in gang):
        demand = Vector(UNSET, UNSET, demand.devices)
    return demand


def _need_in(said: job_pb2.Resources) -> Vector:
    """Return a task's resources. Unset CPUs and memory follow from its devices; a task without devices then has none."""
    cpu_milli, memory_mib, devices = vector_in(said)
    if devices:
        cpu_milli = cpu_milli if said.HasField("cpu_milli") else UNSET
        memory_mib = memory_mib if said.HasField("memory_mib") else UNSET
    return Vector(cpu_milli, memory_mib, devices)


def _cells_in(spec: _Asking) -> CellRequest:
    asked = spec.cells
    levels = tuple(group.level for group in spec.task_groups) or (asked.level,)
    within = (Within(w.level, not w.preferred, w.task_group if w.HasField("task_group") else -1) for w in asked.within)
    return CellRequest(
        asked.pool, asked.model, asked.pin, levels if any(levels) else (), tuple(within), asked.lazy, asked.vacates
    )


def dependencies_in(found: Iterable[job_pb2.Dependency]) -> tuple[Dependency, ...]:
    """Each job once for each kind, in order."""
    pairs = (Dependency(d.job_id, DependencyKind(d.kind) if d.kind else DependencyKind.AFTER_OK) for d in found)
    return tuple(sorted(set(pairs)))


def spec_out(spec: JobSpec) -> job_pb2.JobSpec:
    out = job_pb2.JobSpec(
        job_class=int(spec.job_class),  # type: ignore[arg-type]  # the values are the same by definition
        command=spec.command,
        environment=dict(spec.environment),
        grace_period=duration_out(spec.grace_us),
        time_limit=duration_out(spec.time_limit_us) if spec.time_limit_us else None,
        retry=message_of(job_pb2.Retry, spec.retry) if spec.retry.limit else None,
        array=message_of(job_pb2.Array, spec.array) if spec.array else None,
        **dict(zip(_PLAIN, _plain(spec), strict=True)),
    )
    if spec.inherited:
        out.inherited_environment.update(spec.inherited)
    _needs_out(spec, out)
    if spec.vc:
        out.virtual_cluster, out.guarantee = spec.vc, int(spec.guarantee)  # type: ignore[assignment]
    for one in spec.alternatives:
        said = out.alternatives.add(command=one.command, environment=dict(one.environment))
        said.device_memory_mib = one.device_memory_mib
        _needs_out(one, said)
    if spec.snapshots:
        out.snapshots.extend(spec.snapshots)
    if spec.dependencies:
        out.dependencies.extend(job_pb2.Dependency(job_id=d.job_id, kind=int(d.kind)) for d in spec.dependencies)  # type: ignore[arg-type]
    if spec.shares or spec.gpu_fraction_ppm or spec.gpu_memory_mib:
        out.share = int(spec.share)  # type: ignore[assignment]
    if spec.exit_0_after_stop is not Exit0AfterStop.STOPPED:
        out.exit_0_after_stop = int(spec.exit_0_after_stop)  # type: ignore[assignment]
    return out


def _needs_out(spec: JobSpec | Configuration, out: _Asking) -> None:
    out.resources.CopyFrom(vector_out(spec.demand))
    if spec.estimate_us:
        out.estimate.CopyFrom(duration_out(spec.estimate_us))
    if spec.nodes != ANY_NODE:
        names, labels, excluded = spec.nodes
        out.nodes.CopyFrom(job_pb2.NodeRequest(names=names, labels=dict(labels), excluded=excluded))
    if spec.gang:
        groups = (job_pb2.TaskGroup(count=g.size, resources=vector_out(g.demand), command=g.command) for g in spec.gang)
        out.task_groups.extend(groups)
    if spec.cells != _ANY_CELLS:
        _cells_out(spec, out)


_ANY_CELLS = CellRequest()


def _cells_out(spec: JobSpec | Configuration, out: _Asking) -> None:
    pool, model, pin, levels, within, lazy, vacates = spec.cells
    asked = job_pb2.CellRequest(pool=pool, model=model, pin=pin, lazy=lazy, vacates=vacates)
    for one in within:
        asked.within.add(level=one.level, preferred=not one.required, task_group=None if one.group < 0 else one.group)
    if not spec.gang:
        asked.level = levels[0] if levels else ""
    for group, level in zip(out.task_groups, levels, strict=False):
        group.level = level
    if asked != job_pb2.CellRequest():
        out.cells.CopyFrom(asked)
