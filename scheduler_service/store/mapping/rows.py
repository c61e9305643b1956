"""Core rows as records of the tables, and back."""

import math
from collections.abc import Mapping, Sequence
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
    Strike,
)
from scheduler_service.core.model.estimates import History, PastRun
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import Parking, PhaseTime
from scheduler_service.core.model.rows import make_row, with_changes
from scheduler_service.core.model.runs import Turns
from scheduler_service.core.model.saves import SaveOutcome, SaveResult
from scheduler_service.core.model.sharing import Row, ShareGroup
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Pin, Quota, VcPolicy, VirtualCluster
from scheduler_service.core.model.values import Vector
from scheduler_service.store.mapping import sparse_fields
from scheduler_service.store.mapping.records import Source, reader, vector, vector_of
from scheduler_service.store.schema import tables

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
    "strike_causes": lambda node: node.strike_causes or None,
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

_cluster, _job, _node, _device, _earmark = map(reader, (tables.cluster, tables.job, tables.node, tables.device, tables.earmark))
_share_group, _operation, _memo, _history = map(reader, (tables.share_group, tables.operation, tables.memo, tables.history))
_vc, _binding = map(reader, (tables.virtual_cluster, tables.cell_binding))
_run = reader(tables.run, "vc")


def to_cluster(values: Sequence[Any]) -> Cluster:
    c = _cluster(values)
    return Cluster(
        c.id,
        c.seed,
        c.next_job,
        c.next_node,
        c.next_earmark,
        c.next_vc,
        c.clock_us,
        c.next_posting,
        c.next_exchange,
        c.next_share_group or 1,
        c.next_operation or 1,
    )


def to_job(values: Sequence[Any]) -> Job:
    """A leader that begins makes all live jobs in this way, of which there may be 100,000."""
    j = _job(values)
    spec = make_row(
        JobSpec,
        command=tuple(j.command),
        demand=_vector(j.demand_cpu_milli, j.demand_memory_mib, j.demand_devices),
        job_class=_JOB_CLASSES[j.job_class],
        grace_us=j.grace_us,
        name=j.name,
        environment=sparse_fields.shared_pairs(j.environment),
        working_directory=j.working_directory,
        vc=j.vc,
        **sparse_fields.to_spec(j.spec_more),
    )
    state = sparse_fields.to_job(j.more)
    if spec.gang and (tasks := state.get("tasks")):  # the columns of the spec are what was submitted
        spec = spec.with_tasks(tasks)
    if (grace_us := state.get("grace_now_us")) is not None:
        spec = with_changes(spec, grace_us=grace_us)
    if (share := state.get("share_now")) is not None:
        spec = with_changes(spec, share=share)
    for configuration, memory_mib, _ in state.get("sampled_memory", ()):
        spec = spec.with_memory(configuration, memory_mib)
    return make_row(
        Job,
        id=j.id,
        spec=spec,
        user=j.user_name,
        request_id=j.request_id,
        submitted_us=j.submitted_us,
        state=_JOB_STATES[j.state],
        reason=_REASONS[j.reason],
        detail=j.detail,
        cause_job=j.cause_job,
        run=j.run,
        requeued=j.requeued,
        preempted_for_trial=j.preempted_for_trial,
        cancel_requested=j.cancel_requested,
        started_us=j.started_us,
        ended_us=j.ended_us,
        exit_code=j.exit_code,
        exit_signal=j.exit_signal,
        array_job=j.array_job,
        array_index=j.array_index,
        **state,
    )


_JOB_CLASSES = {int(each): each for each in JobClass}
_JOB_STATES = {int(each): each for each in JobState}
_REASONS = {int(each): each for each in Reason}
_vector = lru_cache(4096)(Vector)
"""One object for all jobs that ask for the same, which are many."""


def to_run(values: Sequence[Any]) -> Run:
    """Make a run from the columns of its table and the virtual cluster of its job, which is not stored twice."""
    r = _run(values)
    parking = _to_parking(r.parking) if r.parking is not None else None
    away = parking is not None and bool(parking.devices)  # the columns say where it was placed
    return make_row(
        Run,
        job_id=r.job_id,
        run=r.run,
        node=r.node,
        devices=() if away else tuple(r.devices),
        demand=Vector(r.demand_cpu_milli, r.demand_memory_mib, 0 if away else r.demand_devices),
        phase=RunPhase(r.phase),
        placed_us=r.placed_us,
        started_us=r.started_us,
        ended_us=r.ended_us,
        log_path=r.log_path,
        stop_reason=None if r.stop_reason is None else StopReason(r.stop_reason),
        stop_grace_us=r.stop_grace_us,
        stop_us=r.stop_us,
        stop_for=r.stop_for,
        exit_code=r.exit_code,
        exit_signal=r.exit_signal,
        yielded=r.yielded,
        lost=r.lost,
        task=r.task,
        ready_at=r.ready_at,
        guarded_us=r.guarded_us,
        vc=r.vc,
        guaranteed=r.guaranteed,
        done=r.done,
        program=r.program or "",
        generation=r.generation or 1,
        group=r.share_group or 0,
        device_memory_mib=r.device_memory_mib or 0,
        parked_mib=r.parked_mib or 0,
        shared=r.share_group is not None,
        parking=parking,
        phases=tuple(PhaseTime(OperationKind(kind), OperationPhase(phase), *rest) for kind, phase, *rest in r.phases or ()),
        part_ppm=r.part_ppm or 0,
        awaits=r.awaits is not None,
        began_from=r.began_from or "",
        checkpoint=r.checkpoint or "",
        save=None if r.save is None else to_save(r.save),
        turns=None if r.turns is None else Turns(*r.turns),
        overdue_us=r.overdue_us,
    )


def to_save(found: Sequence[Any]) -> SaveResult:
    outcome, step, detail = found
    return SaveResult(SaveOutcome(outcome), step, detail)


def _to_parking(found: Sequence[Any]) -> Parking:
    times, underway, devices, *rest = found
    return Parking(times, underway, tuple(devices), *rest)


def to_share_group(values: Sequence[Any]) -> ShareGroup:
    g = _share_group(values)
    devices = tuple((node, tuple(indices)) for node, indices in g.devices)
    members = tuple(Row(tuple(RunKey(*key) for key in keys), weight) for keys, weight in g.plan)
    return ShareGroup(g.id, devices, members, g.period_us, g.vc, g.guaranteed, g.generation, g.open)


def to_operation(values: Sequence[Any]) -> Operation:
    o = _operation(values)
    return Operation(
        o.id,
        OperationKind(o.kind),
        OperationPhase(o.phase),
        o.job_id,
        RunKey(*o.source),
        o.begun_us,
        o.phase_us,
        None if o.target is None else RunKey(*o.target),
        o.deadline_us,
        tuple(o.undo),
        tuple(sorted(o.more.items())),
    )


def to_node(values: Sequence[Any]) -> Node:
    n = _node(values)
    return Node(
        n.id,
        n.name,
        n.boot_id,
        NodeState(n.state),
        Vector(*vector_of(n, "capacity")),
        tuple(n.levels),
        n.since_us,
        n.sequence,
        n.address,
        n.agent_version,
        n.drained_us,
        n.drain_reason,
        n.drain_user,
        n.strikes,
        tuple(sorted((n.labels or {}).items())),
        n.checkpoints_at or "",
        tuple(Strike(*cause) for cause in n.strike_causes or ()),
    )


def to_device(values: Sequence[Any]) -> NodeDevice:
    d = _device(values)
    return NodeDevice(d.node, d.index, d.uuid, d.model, d.memory_mib, tuple(d.path), d.numa_node, d.link_domain, d.fault)


def to_earmark(values: Sequence[Any]) -> Earmark:
    e = _earmark(values)
    return Earmark(
        e.id,
        EarmarkPhase(e.phase),
        e.job_id,
        e.node,
        Vector(*vector_of(e, "want")),
        Vector(*vector_of(e, "kept")),
        tuple(RunKey(*key) for key in e.victims),
        e.created_us,
        e.deadline_us,
        tuple(e.tasks),
        tuple(map(tuple, e.devices)),
        e.configuration or 0,
    )


def to_vc(values: Sequence[Any]) -> VirtualCluster:
    vc = _vc(values)
    quotas, pins = tuple(Quota(*quota) for quota in vc.quotas), tuple(Pin(*pin) for pin in vc.pins)
    return VirtualCluster(vc.id, vc.name, quotas, pins, vc.weight, _to_vc_policy(vc.policy))


def _to_vc_policy(given: Mapping[str, Any]) -> VcPolicy:
    settings = tuple((name, float(value)) for name, value in given.get("settings", ()))
    return VcPolicy(**{**given, "s": float(given["s"]), "settings": settings})


def to_binding(values: Sequence[Any]) -> Binding:
    b = _binding(values)
    return Binding(b.pool, b.level, b.index, b.vc, b.pin)


def to_history(values: Sequence[Any]) -> History:
    h = _history(values)
    runs = (PastRun(*run)._replace(sizes=tuple(map(float, run[4]))) for run in h.runs)
    return History(h.user_name, h.script, tuple(runs), h.used_us)


def to_memo(values: Sequence[Any]) -> Memo:
    m = _memo(values)
    return Memo(m.policy, m.subject, tuple(m.value), m.job_id or 0, m.due_us, m.due)
