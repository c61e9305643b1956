"""The runs at the destination of a migration: which they are, and how they are released if they are not needed."""

from scheduler_service.core.allocation.bindings import give_back, left
from scheduler_service.core.allocation.share_groups import leave
from scheduler_service.core.model import Run, RunKey, RunPhase, StopReason
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import PhaseTime
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.holdings import devices_released
from scheduler_service.core.state.state import State


def targets(state: State, operation: Operation) -> list[Run]:
    """The runs in which a job is to continue, in the order of ranks."""
    if operation.target is None:
        return []
    job_id, number, _ = operation.target
    tasks = len(state.jobs.rows[job_id].launch_spec.tasks())
    keys = (RunKey(job_id, number, task) for task in range(tasks))
    return [state.runs.rows[key] for key in keys if key in state.runs.rows]


def target_nodes(state: State, run: Run) -> tuple[int, ...]:
    """The node of each task in the launch of a warm run; empty for other runs. They hold their places together."""
    if not run.awaits:
        return ()
    return tuple(one.node for one in targets(state, state.operations.rows[state.operation_of[run.job_id]]))


def release_targets(state: State, now: Micros, operation: Operation, why: str) -> None:
    """Releases warm runs that are not needed any more. Their nodes are told, what they held is free immediately, and their rows
    say why they never began."""
    for run in targets(state, operation):
        if run.awaits:
            took = PhaseTime(operation.kind, operation.phase, operation.phase_us, now - operation.phase_us, why)
            over = changed(run, phase=RunPhase.ENDED, ended_us=now, stop_reason=StopReason.MIGRATED, phases=(took,))
            if run.group:
                mask = devices_released(state, [run])[run.node]
                state.put(state.runs, run.key, changed(over, group=0, parked_mib=0))
                leave(state, run)
                if run.guaranteed and mask:
                    give_back(state, run.node, mask)
            else:
                state.put(state.runs, run.key, over)
                left(state, run)
