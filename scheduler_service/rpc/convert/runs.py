"""Runs and operations, from rows to ebb.v1."""

import time
from collections.abc import Mapping

from ebb.v1 import job_pb2 as pb

from scheduler_service.core.model import Reason, Run, StopReason
from scheduler_service.core.model.launch_time import parked_us
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import PhaseTime
from scheduler_service.core.model.saves import SaveResult
from scheduler_service.rpc.convert.values import Nodes, duration_out, name_of, time_out, vector_out

_WHY: Mapping[StopReason, Reason] = {
    StopReason.PREEMPTED: Reason.PREEMPTED,
    StopReason.CANCELLED: Reason.CANCELLED,
    StopReason.UNCLAIMED: Reason.NODE_LOST,
    StopReason.SUSPENDED: Reason.SUSPENDED,
    StopReason.REQUEUED: Reason.REQUEUED,
    StopReason.TIME_LIMIT: Reason.TIME_LIMIT,
    StopReason.GANG: Reason.TASK_FAILED,
    StopReason.DRAINED: Reason.NODE_DRAINED,
    StopReason.RECLAIMED: Reason.RECLAIMED,
    StopReason.RESIZED: Reason.RESIZED,
    StopReason.SAMPLED: Reason.SAMPLED,
    StopReason.PARKED: Reason.PARKED,
    StopReason.MIGRATED: Reason.MIGRATED,
}


def run_out(run: Run, nodes: Nodes) -> pb.Run:
    out = pb.Run(
        run=run.run,
        task=run.task,
        node=name_of(nodes, run.node),
        devices=run.given,
        resources=vector_out(run.asked),
        phase=int(run.phase),  # type: ignore[arg-type]
        place_time=time_out(run.placed_us),
        start_time=time_out(run.started_us),
        end_time=time_out(run.ended_us),
        exit_code=run.exit_code,
        exit_signal=run.exit_signal,
        stop_reason=0 if run.stop_reason is None else int(_WHY[run.stop_reason]),  # type: ignore[arg-type]
        saved=run.yielded,
        lost=run.lost,
        log_path=run.log_path,
        guaranteed=run.guaranteed,
        operations=[_phase_out(phase) for phase in run.phases],
    )
    if run.save is not None:
        out.save.CopyFrom(save_out(run.save))
    if (parking := run.parking) is not None:
        out.parks, out.rung = parking.times, parking.rung
        out.parked_mib, out.residue_mib = run.parked_mib if run.is_parked else 0, parking.residue_mib
        out.parked_time.CopyFrom(duration_out(parked_us(run, time.time_ns() // 1000)))
    return out


def save_out(save: SaveResult) -> pb.SaveResult:
    outcome = int(save.outcome)
    step = save.step if save.step >= 0 else None
    return pb.SaveResult(outcome=outcome, step=step, detail=save.detail)  # type: ignore[arg-type]


def _phase_out(phase: PhaseTime) -> pb.OperationPhaseTime:
    return pb.OperationPhaseTime(
        kind=int(phase.kind),  # type: ignore[arg-type]
        phase=int(phase.phase),  # type: ignore[arg-type]
        begin_time=time_out(phase.began_us),
        duration=duration_out(phase.took_us),
        detail=phase.text,
    )


def operation_out(operation: Operation) -> pb.Operation:
    return pb.Operation(
        kind=int(operation.kind),  # type: ignore[arg-type]
        phase=int(operation.phase),  # type: ignore[arg-type]
        begin_time=time_out(operation.begun_us),
        phase_time=time_out(operation.phase_us),
        deadline=time_out(operation.deadline_us),
    )
