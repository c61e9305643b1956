"""Core rows as records of the tables, and back. A record's keys are the column names; a Vector is three columns."""

import math
from collections.abc import Sequence
from typing import Any

from scheduler_service.core.model import (
    Cluster,
    Earmark,
    EarmarkPhase,
    Job,
    JobClass,
    JobSpec,
    JobState,
    Node,
    NodeDevice,
    NodeState,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.values import Vector
from scheduler_service.core.model.virtual_clusters import Binding, Pin, Quota, VcPolicy, VirtualCluster
from scheduler_service.store.mapping import sparse_fields

Record = dict[str, Any]
"""Plain JSON: numbers, strings, lists and None."""


# -- rows to records: `*_new` gives all columns, `*_changed` the key and those that change in a row's life ---------------


def cluster_new(c: Cluster) -> Record:
    return {
        "id": c.id,
        "seed": c.seed,
        "next_job": c.next_job,
        "next_node": c.next_node,
        "next_earmark": c.next_earmark,
        "next_vc": c.next_vc,
        "clock_us": c.clock_us,
        "next_posting": c.next_posting,
        "next_exchange": c.next_exchange,
    }


def job_changed(j: Job) -> Record:
    return {
        "id": j.id,
        "state": j.state,
        "reason": j.reason,
        "detail": j.detail,
        "cause_job": j.cause_job,
        "run": j.run,
        "requeued": j.requeued,
        "preempted_for_trial": j.preempted_for_trial,
        "cancel_requested": j.cancel_requested,
        "started_us": j.started_us,
        "ended_us": j.ended_us,
        "exit_code": j.exit_code,
        "exit_signal": j.exit_signal,
        "more": sparse_fields.of_job(j),
    }


def job_new(j: Job) -> Record:
    spec = j.spec
    record = job_changed(j)
    record["name"] = spec.name
    record["user_name"] = j.user
    record["request_id"] = j.request_id
    record["job_class"] = spec.job_class
    record["demand_cpu_milli"], record["demand_memory_mib"], record["demand_devices"] = spec.demand
    record["grace_us"] = spec.grace_us
    record["command"] = spec.command
    record["environment"] = spec.environment
    record["working_directory"] = spec.working_directory
    record["submitted_us"] = j.submitted_us
    record["spec_more"] = sparse_fields.of_spec(spec)
    record["array_job"] = j.array_job
    record["array_index"] = j.array_index
    record["vc"] = spec.vc
    return record


def run_changed(r: Run) -> Record:
    return {
        "job_id": r.job_id,
        "run": r.run,
        "task": r.task,
        "phase": r.phase,
        "started_us": r.started_us,
        "ended_us": r.ended_us,
        "log_path": r.log_path,
        "program": r.program or None,
        "generation": None if r.generation == 1 else r.generation,
        "stop_reason": r.stop_reason,
        "stop_grace_us": r.stop_grace_us,
        "stop_us": r.stop_us,
        "stop_for": r.stop_for,
        "exit_code": r.exit_code,
        "exit_signal": r.exit_signal,
        "yielded": r.yielded,
        "lost": r.lost,
        "ready_at": r.ready_at,
        "guarded_us": r.guarded_us,
        "guaranteed": r.guaranteed,
        "done": r.done,
    }


def run_new(r: Run) -> Record:
    record = run_changed(r)
    record["node"] = r.node
    record["devices"] = r.devices
    record["demand_cpu_milli"], record["demand_memory_mib"], record["demand_devices"] = r.demand
    record["placed_us"] = r.placed_us
    return record


def node_new(n: Node) -> Record:
    return {
        "id": n.id,
        "name": n.name,
        "boot_id": n.boot_id,
        "state": n.state,
        "capacity_cpu_milli": n.capacity.cpu_milli,
        "capacity_memory_mib": n.capacity.memory_mib,
        "capacity_devices": n.capacity.devices,
        "levels": n.levels,
        "since_us": n.since_us,
        "sequence": n.sequence,
        "address": n.address,
        "agent_version": n.agent_version,
        "drained_us": n.drained_us,
        "drain_reason": n.drain_reason,
        "drain_user": n.drain_user,
        "strikes": n.strikes,
    }


def device_new(d: NodeDevice) -> Record:
    return {
        "node": d.node,
        "index": d.index,
        "uuid": d.uuid,
        "model": d.model,
        "memory_mib": d.memory_mib,
        "path": d.path,
        "numa_node": d.numa_node,
        "link_domain": d.link_domain,
        "fault": d.fault,
    }


def earmark_new(o: Earmark) -> Record:
    return {
        "id": o.id,
        "phase": o.phase,
        "job_id": o.job_id,
        "node": o.node,
        "want_cpu_milli": o.want.cpu_milli,
        "want_memory_mib": o.want.memory_mib,
        "want_devices": o.want.devices,
        "kept_cpu_milli": o.kept.cpu_milli,
        "kept_memory_mib": o.kept.memory_mib,
        "kept_devices": o.kept.devices,
        "victims": o.victims,
        "created_us": o.created_us,
        "deadline_us": o.deadline_us,
        "tasks": o.tasks,
        "devices": o.devices,
    }


def vc_new(v: VirtualCluster) -> Record:
    return {
        "id": v.id,
        "name": v.name,
        "quotas": v.quotas,
        "pins": v.pins,
        "weight": v.weight,
        "policy": {**v.policy._asdict(), "s": number(v.policy.s)},
    }


def binding_new(b: Binding) -> Record:
    return {"pool": b.pool, "level": b.level, "index": b.index, "vc": b.vc, "pin": b.pin}


def number(x: float) -> float | str:
    """JSON has no infinities; `float` reads their names."""
    return x if math.isfinite(x) else str(x)


# -- records to rows: values in the order of the table's columns ----------------------------------------------------------


def _keys(parts: Sequence[Sequence[int]]) -> tuple[RunKey, ...]:
    return tuple(RunKey(*part) for part in parts)


def to_cluster(v: Sequence[Any]) -> Cluster:
    return Cluster(*v[:9])


def to_job(v: Sequence[Any]) -> Job:
    command, environment = tuple(v[9]), tuple((name, value) for name, value in v[10])
    demand = Vector(v[5], v[6], v[7])
    spec = JobSpec(command, demand, JobClass(v[4]), v[8], v[1], environment, v[11], vc=v[29], **sparse_fields.to_spec(v[25]))
    state = {"array_job": v[27], "array_index": v[28], **sparse_fields.to_job(v[26])}
    return Job(v[0], spec, v[2], v[3], v[12], JobState(v[13]), Reason(v[14]), *v[15:25], **state)


def to_run(v: Sequence[Any]) -> Run:
    """Of the columns of its table, and the virtual cluster of its job, which is not written twice."""
    job_id, run, node, devices, cpu_milli, memory_mib, count, phase, placed_us, started_us, ended_us, log_path = v[:12]
    stop_reason, stop_grace_us, stop_us, stop_for, exit_code, exit_signal, yielded, lost, task, ready_at, guarded_us = v[12:23]
    guaranteed, done, program, generation, vc = v[23:28]
    return Run(
        job_id,
        run,
        node,
        tuple(devices),
        Vector(cpu_milli, memory_mib, count),
        RunPhase(phase),
        placed_us,
        started_us,
        ended_us,
        log_path,
        None if stop_reason is None else StopReason(stop_reason),
        stop_grace_us,
        stop_us,
        stop_for,
        exit_code,
        exit_signal,
        yielded,
        lost,
        task,
        ready_at,
        guarded_us,
        vc,
        guaranteed,
        done,
        program or "",
        generation or 1,
    )


def to_node(v: Sequence[Any]) -> Node:
    return Node(v[0], v[1], v[2], NodeState(v[3]), Vector(v[4], v[5], v[6]), tuple(v[7]), *v[8:16])


def to_device(v: Sequence[Any]) -> NodeDevice:
    return NodeDevice(v[0], v[1], v[2], v[3], v[4], tuple(v[5]), v[6], v[7], v[8])


def to_earmark(v: Sequence[Any]) -> Earmark:
    want, kept = Vector(v[4], v[5], v[6]), Vector(v[7], v[8], v[9])
    victims, tasks, devices = _keys(v[10]), tuple(v[13]), tuple(map(tuple, v[14]))
    row = EarmarkPhase(v[1]), v[2], v[3], want, kept, victims, v[11], v[12], tasks, devices
    return Earmark(v[0], *row)


def to_vc(v: Sequence[Any]) -> VirtualCluster:
    quotas, pins = tuple(Quota(*quota) for quota in v[2]), tuple(Pin(*pin) for pin in v[3])
    return VirtualCluster(v[0], v[1], quotas, pins, v[4], VcPolicy(**{**v[5], "s": float(v[5]["s"])}))


def to_binding(v: Sequence[Any]) -> Binding:
    return Binding(*v[:5])
