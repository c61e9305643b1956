"""Core rows as records of the tables, and back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
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
    OperationKind,
    OperationPhase,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.estimates import History, PastRun
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import Parking, PhaseTime
from scheduler_service.core.model.rows import changed, made
from scheduler_service.core.model.saves import SaveOutcome, SaveResult
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.turns import Turns
from scheduler_service.core.model.values import Vector
from scheduler_service.core.model.virtual_clusters import Binding, Pin, Quota, VcPolicy, VirtualCluster
from scheduler_service.store.mapping import sparse_fields
from scheduler_service.store.mapping.records import Source, vector

# -- rows to records: what is not in a column as the field of the same name --------------------------------------------------


def _generation(run: Run) -> int | None:
    """Most runs never leave the first."""
    return None if run.generation == 1 else run.generation


JOB: dict[str, Source] = {
    **{name: f"spec.{name}" for name in ("name", "job_class", "grace_us", "command", "environment", "working_directory", "vc")},
    **vector("demand", "spec.demand"),
    "user_name": "user",
    "more": sparse_fields.of_job,
    "spec_more": lambda job: sparse_fields.of_spec(job.spec),
}
RUN: dict[str, Source] = {
    **vector("demand", "demand"),
    "program": lambda run: run.program or None,
    "generation": _generation,
    "share_group": lambda run: run.group if run.shared else None,
    "device_memory_mib": lambda run: run.device_memory_mib or None,
    "parked_mib": lambda run: run.parked_mib or None,
    "phases": lambda run: run.phases or None,
    "part_ppm": lambda run: run.part_ppm or None,
    "awaits": lambda run: run.awaits or None,
    "began_from": lambda run: run.began_from or None,
    "checkpoint": lambda run: run.checkpoint or None,
    "save": lambda run: run.save,
}
NODE: dict[str, Source] = {
    **vector("capacity", "capacity"),
    "labels": lambda node: dict(node.labels) or None,
    "checkpoints_at": lambda node: node.checkpoints_at or None,
}
EARMARK: dict[str, Source] = {
    **vector("want", "want"),
    **vector("kept", "kept"),
    "configuration": lambda earmark: earmark.configuration or None,
}
OPERATION: dict[str, Source] = {"more": lambda operation: dict(operation.more)}
MEMO: dict[str, Source] = {"job_id": lambda memo: memo.job_id or None}
HISTORY: dict[str, Source] = {"user_name": "user"}
VC: dict[str, Source] = {"policy": lambda vc: {**vc.policy._asdict(), "s": number(vc.policy.s)}}


def number(x: float) -> float | str:
    """JSON has no infinities; `float` reads their names."""
    return x if math.isfinite(x) else str(x)


# -- records to rows: values in the order of the table's columns ----------------------------------------------------------


def to_cluster(v: Sequence[Any]) -> Cluster:
    return Cluster(*(*v[:9], v[9] or 1, v[10] or 1))


def to_job(v: Sequence[Any]) -> Job:
    """A leader that begins makes all live jobs in this way, of which there may be 100,000."""
    spec = made(
        JobSpec,
        command=tuple(v[9]),
        demand=_vector(v[5], v[6], v[7]),
        job_class=_JOB_CLASSES[v[4]],
        grace_us=v[8],
        name=v[1],
        environment=sparse_fields.shared_pairs(v[10]),
        working_directory=v[11],
        vc=v[29],
        **sparse_fields.to_spec(v[25]),
    )
    state = sparse_fields.to_job(v[26])
    if spec.gang and (tasks := state.get("tasks")):  # the columns of the spec are what was submitted
        spec = spec.resized(tasks)
    if (grace_us := state.get("grace_now_us")) is not None:
        spec = changed(spec, grace_us=grace_us)
    if (share := state.get("share_now")) is not None:
        spec = changed(spec, share=share)
    for configuration, memory_mib, _ in state.get("sampled_memory", ()):
        spec = spec.with_memory(configuration, memory_mib)
    return made(
        Job,
        id=v[0],
        spec=spec,
        user=v[2],
        request_id=v[3],
        submitted_us=v[12],
        state=_JOB_STATES[v[13]],
        reason=_REASONS[v[14]],
        **dict(zip(_JOB_COLUMNS, v[15:25], strict=True)),
        array_job=v[27],
        array_index=v[28],
        **state,
    )


_JOB_CLASSES = {int(each): each for each in JobClass}
_JOB_STATES = {int(each): each for each in JobState}
_REASONS = {int(each): each for each in Reason}
_JOB_COLUMNS = tuple(field.name for field in fields(Job))[7:17]
"""Fields in the order of their columns."""
_vector = lru_cache(4096)(Vector)
"""One object for all jobs that ask for the same, which are many."""


def to_run(v: Sequence[Any]) -> Run:
    """Of the columns of its table, and the virtual cluster of its job, which is not written twice."""
    guaranteed, done, program, generation, group, memory, parked, parking, phases, part, awaits, *rest = v[23:40]
    began_from, checkpoint, save, turns, overdue, vc = rest
    stop_reason = None if v[12] is None else StopReason(v[12])
    later = (*v[8:12], stop_reason, *v[13:23], vc, guaranteed, done, program or "", generation or 1)
    parks = _to_parking(parking) if parking is not None else None
    times = tuple(PhaseTime(OperationKind(kind), OperationPhase(phase), *rest) for kind, phase, *rest in phases or ())
    later = (*later, group or 0, memory or 0, parked or 0, group is not None, parks, times, part or 0, awaits is not None)
    later = (*later, began_from or "", checkpoint or "", None if save is None else to_save(save))
    later = (*later, None if turns is None else Turns(*turns), overdue)
    away = parks is not None and bool(parks.devices)  # the columns say where it was placed
    devices, demand = (() if away else tuple(v[3])), Vector(v[4], v[5], 0 if away else v[6])
    return Run(v[0], v[1], v[2], devices, demand, RunPhase(v[7]), *later)


def to_save(found: Sequence[Any]) -> SaveResult:
    outcome, step, detail = found
    return SaveResult(SaveOutcome(outcome), step, detail)


def _to_parking(found: Sequence[Any]) -> Parking:
    times, underway, devices, *rest = found
    return Parking(times, underway, tuple(devices), *rest)


def to_share_group(v: Sequence[Any]) -> ShareGroup:
    devices = tuple((node, tuple(indices)) for node, indices in v[1])
    members = tuple(Row(tuple(RunKey(*key) for key in keys), weight) for keys, weight in v[2])
    return ShareGroup(v[0], devices, members, *v[3:8])


def to_operation(v: Sequence[Any]) -> Operation:
    target = None if v[7] is None else RunKey(*v[7])
    later = target, v[8], tuple(v[9]), tuple(sorted(v[10].items()))
    return Operation(v[0], OperationKind(v[1]), OperationPhase(v[2]), v[3], RunKey(*v[4]), v[5], v[6], *later)


def to_node(v: Sequence[Any]) -> Node:
    later = (*v[8:16], tuple(sorted((v[16] or {}).items())), v[17] or "")
    return Node(v[0], v[1], v[2], NodeState(v[3]), Vector(v[4], v[5], v[6]), tuple(v[7]), *later)


def to_device(v: Sequence[Any]) -> NodeDevice:
    return NodeDevice(v[0], v[1], v[2], v[3], v[4], tuple(v[5]), v[6], v[7], v[8])


def to_earmark(v: Sequence[Any]) -> Earmark:
    want, kept = Vector(v[4], v[5], v[6]), Vector(v[7], v[8], v[9])
    victims, tasks, devices = tuple(RunKey(*key) for key in v[10]), tuple(v[13]), tuple(map(tuple, v[14]))
    row = EarmarkPhase(v[1]), v[2], v[3], want, kept, victims, v[11], v[12], tasks, devices, v[15] or 0
    return Earmark(v[0], *row)


def to_vc(v: Sequence[Any]) -> VirtualCluster:
    quotas, pins = tuple(Quota(*quota) for quota in v[2]), tuple(Pin(*pin) for pin in v[3])
    return VirtualCluster(v[0], v[1], quotas, pins, v[4], _to_vc_policy(v[5]))


def _to_vc_policy(given: Mapping[str, Any]) -> VcPolicy:
    settings = tuple((name, float(value)) for name, value in given.get("settings", ()))
    return VcPolicy(**{**given, "s": float(given["s"]), "settings": settings})


def to_binding(v: Sequence[Any]) -> Binding:
    return Binding(*v[:5])


def to_history(v: Sequence[Any]) -> History:
    runs = (PastRun(*run)._replace(sizes=tuple(map(float, run[4]))) for run in v[2])
    return History(v[0], v[1], tuple(runs), v[3])


def to_memo(v: Sequence[Any]) -> Memo:
    return Memo(v[0], v[1], tuple(v[2]), v[3] or 0, v[4], v[5])
