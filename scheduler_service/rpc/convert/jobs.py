"""Between the core's rows and ebb.v1. The only place, with the files of the services, that knows both."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ebb.v1 import cluster_pb2, job_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from scheduler_service.core.model import (
    Array,
    Decision,
    Dependency,
    DependencyKind,
    Exit0AfterStop,
    JobClass,
    JobEvent,
    JobSpec,
    Node,
    NodeDevice,
    Retry,
    Run,
    TaskGroup,
)
from scheduler_service.core.model.values import ZERO, Micros, Vector, add
from scheduler_service.core.model.virtual_clusters import CellRequest, Guarantee, Within
from scheduler_service.rpc.sight import Sight
from scheduler_service.run.view import JobView, NodeView

# ---- in ----------------------------------------------------------------------------------------------------------------


def spec_in(spec: job_pb2.JobSpec, default_grace_us: Micros) -> JobSpec:
    """Most jobs say little of what can be said, and every Submit passes here: what is not said is not looked at."""
    demand = vector_in(spec.resources)
    more: dict[str, Any] = {}
    if spec.task_groups:
        gang = more["gang"] = tuple(TaskGroup(g.count, vector_in(g.resources), tuple(g.command)) for g in spec.task_groups)
        demand = ZERO
        for group in gang:
            demand = add(demand, Vector(*(part * group.size for part in group.demand)))
    if spec.job_class:
        more["job_class"] = JobClass(spec.job_class)
    if spec.environment:
        more["environment"] = tuple(sorted(spec.environment.items()))
    if spec.inherited_environment:
        more["inherited"] = _inherited(tuple(sorted(spec.inherited_environment.items())))
    if spec.HasField("time_limit"):
        more["time_limit_us"] = duration_in(spec.time_limit)
    if spec.HasField("estimate"):
        more["estimate_us"] = duration_in(spec.estimate)
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
    if spec.virtual_cluster:
        more |= {"vc": spec.virtual_cluster, "cells": _cells_in(spec)}
    return JobSpec(
        command=tuple(spec.command),
        demand=demand,
        grace_us=duration_in(spec.grace_period) if spec.HasField("grace_period") else default_grace_us,
        name=spec.name,
        working_directory=spec.working_directory,
        priority=spec.priority,
        **more,
    )


@lru_cache(4096)
def _inherited(found: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """One object for all jobs that inherited the same, which are many."""
    return found


def _cells_in(spec: job_pb2.JobSpec) -> CellRequest:
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


def vector_in(amount: job_pb2.Resources) -> Vector:
    return Vector(amount.cpu_milli, amount.memory_mib, amount.devices)


def duration_in(duration: Duration) -> Micros:
    return duration.seconds * 1_000_000 + duration.nanos // 1000


# ---- out ---------------------------------------------------------------------------------------------------------------


Nodes = Mapping[int, Node]


def name_of(nodes: Nodes, node_id: int) -> str:
    return nodes[node_id].name if node_id in nodes else ""


def time_out(at: Micros | None) -> Timestamp | None:
    return None if at is None else Timestamp(seconds=at // 1_000_000, nanos=at % 1_000_000 * 1000)


def duration_out(duration: Micros) -> Duration:
    return Duration(seconds=duration // 1_000_000, nanos=duration % 1_000_000 * 1000)


def vector_out(amount: Vector) -> job_pb2.Resources:
    return job_pb2.Resources(cpu_milli=amount.cpu_milli, memory_mib=amount.memory_mib, devices=amount.devices)


def spec_out(spec: JobSpec) -> job_pb2.JobSpec:
    out = job_pb2.JobSpec(
        name=spec.name,
        job_class=int(spec.job_class),  # type: ignore[arg-type]  # the values are the same by definition
        command=spec.command,
        environment=dict(spec.environment),
        working_directory=spec.working_directory,
        resources=vector_out(spec.demand),
        grace_period=duration_out(spec.grace_us),
        priority=spec.priority,
    )
    if spec.inherited:
        out.inherited_environment.update(spec.inherited)
    if spec.time_limit_us:
        out.time_limit.CopyFrom(duration_out(spec.time_limit_us))
    if spec.estimate_us:
        out.estimate.CopyFrom(duration_out(spec.estimate_us))
    if spec.retry.limit:
        out.retry.CopyFrom(job_pb2.Retry(**spec.retry._asdict()))
    if spec.gang:
        groups = (job_pb2.TaskGroup(count=g.size, resources=vector_out(g.demand), command=g.command) for g in spec.gang)
        out.task_groups.extend(groups)
    if spec.vc:
        out.virtual_cluster, out.guarantee = spec.vc, int(spec.guarantee)  # type: ignore[assignment]
        _cells_out(spec, out)
    if spec.dependencies:
        out.dependencies.extend(job_pb2.Dependency(job_id=d.job_id, kind=int(d.kind)) for d in spec.dependencies)  # type: ignore[arg-type]
    if spec.exit_0_after_stop is not Exit0AfterStop.STOPPED:
        out.exit_0_after_stop = int(spec.exit_0_after_stop)  # type: ignore[assignment]
    if spec.array:
        out.array.CopyFrom(job_pb2.Array(size=spec.array.size, at_once=spec.array.at_once))
    return out


def _cells_out(spec: JobSpec, out: job_pb2.JobSpec) -> None:
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


def job_out(view: JobView, nodes: Nodes, sight: Sight) -> job_pb2.Job:
    """As whoever has this sight may see it."""
    job, runs = view
    spec = spec_out(job.spec)
    sight.redact(spec, job)
    out = job_pb2.Job(
        id=job.id,
        spec=spec,
        user=job.user,
        state=int(job.state),  # type: ignore[arg-type]
        reason=int(job.reason),  # type: ignore[arg-type]
        reason_detail=job.detail,
        cause_job_id=job.cause_job,
        run=job.run,
        submit_time=time_out(job.submitted_us),
        start_time=time_out(job.started_us),
        end_time=time_out(job.ended_us),
        exit_code=job.exit_code,
        exit_signal=job.exit_signal,
        preempted_for_trial=job.preempted_for_trial,
        cancel_requested=job.cancel_requested,
        priority=job.priority,
        held=job.held,
        suspend_requested=job.suspend_requested,
        retries=job.retries,
        eligible_time=time_out(job.eligible_us),
        array_job_id=job.array_job,
        array_index=job.array_index,
    )
    if job.time_limit_us:
        out.time_limit.CopyFrom(duration_out(job.time_limit_us))
    if job.ran_us:
        out.run_time.CopyFrom(duration_out(job.ran_us))
    if runs:
        out.node = name_of(nodes, runs[0].node)
        out.devices.extend(runs[0].given)
        out.log_path = runs[0].log_path
        out.guaranteed = runs[0].guaranteed
        out.tasks.extend(task_out(run, nodes) for run in runs)
    if job.elements is not None and job.spec.array is not None:
        size, e = job.spec.array.size, job.elements
        pending = 0 if job.ended_us is not None else size - e.begun
        status = job_pb2.ArrayStatus(size=size, pending=pending, live=e.live, succeeded=e.succeeded, failed=e.failed)
        out.array.CopyFrom(status)
    return out


def task_out(run: Run, nodes: Nodes) -> job_pb2.Task:
    return job_pb2.Task(
        rank=run.task,
        node=name_of(nodes, run.node),
        devices=run.given,
        resources=vector_out(run.demand),
        log_path=run.log_path,
        guaranteed=run.guaranteed,
        program=run.program,
    )


def event_out(event: JobEvent, commit_no: int, nodes: Nodes) -> job_pb2.JobEvent:
    return job_pb2.JobEvent(
        job_id=event.job_id,
        time=time_out(event.at_us),
        kind=int(event.kind),  # type: ignore[arg-type]
        run=event.run,
        node=name_of(nodes, event.node),
        reason=int(event.reason),  # type: ignore[arg-type]
        cause_job_id=event.cause_job,
        exit_code=event.exit_code,
        exit_signal=event.exit_signal,
        text=event.text,
        decision=None if event.decision is None else decision_out(event.decision, nodes),
        commit_no=commit_no,
    )


def decision_out(decision: Decision, nodes: Nodes) -> job_pb2.PreemptionDecision:
    candidates = [
        job_pb2.Candidate(
            job_id=c.key.job_id,
            run=c.key.run,
            node=name_of(nodes, c.node),
            demand=vector_out(c.demand),
            node_free=vector_out(c.node_free),
            size=c.size,
            grace_period=duration_out(c.grace_us),
            score=c.score,
            preempted_for_trial=c.preempted_for_trial,
            sufficient=c.sufficient,
            chosen=c.chosen,
        )
        for c in decision.candidates
    ]
    return job_pb2.PreemptionDecision(
        trial_job_id=decision.trial,
        node=name_of(nodes, decision.node),
        demand=vector_out(decision.demand),
        rule=decision.rule,
        s=decision.s,
        cap=decision.cap,
        max_size=decision.max_size,
        max_grace_period=duration_out(decision.max_grace_us),
        considered=decision.considered,
        candidates=candidates,
    )


def _device_out(d: NodeDevice) -> cluster_pb2.Device:
    return cluster_pb2.Device(
        index=d.index,
        uuid=d.uuid,
        model=d.model,
        memory_mib=d.memory_mib,
        path=d.path,
        fault=d.fault,
        numa_node=d.numa_node,
        link_domain=d.link_domain,
    )


def node_out(view: NodeView) -> cluster_pb2.Node:
    node = view.node
    drain = None
    if node.drained_us is not None:
        drain = cluster_pb2.NodeDrain(reason=node.drain_reason, user=node.drain_user, time=time_out(node.drained_us))
    return cluster_pb2.Node(
        name=node.name,
        state=int(node.state),  # type: ignore[arg-type]
        capacity=vector_out(node.capacity),
        free=vector_out(view.free),
        earmarked=vector_out(view.earmarked),
        levels=node.levels,
        devices=map(_device_out, view.devices),
        share_groups=[cluster_pb2.ShareGroup(device=index, job_ids=jobs) for index, jobs in sorted(view.groups.items())],
        address=node.address,
        agent_version=node.agent_version,
        state_time=time_out(node.since_us),
        drain=drain,
        strikes=node.strikes,
    )
