"""Rows of operations: how one begins, advances to its next phase, and ends. `core.operations` says what the phases mean.

And the runs at the destination of a migration: which they are, and how they are released if they are not needed."""

from scheduler_service.core.allocation.bindings import give_back, release_cells
from scheduler_service.core.allocation.share_groups import leave
from scheduler_service.core.model import (
    EventKind,
    Job,
    OperationKind,
    OperationPhase,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import KEPT, PhaseTime
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.holdings import devices_released
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def operation_of(state: State, job_id: int) -> Operation | None:
    """The operation that blocks other changes of the job, or None. A vacate or a resize blocks nothing: see `vacating`."""
    number = state.operation_of.get(job_id)
    return None if number is None else state.operations.rows[number]


def begin(
    state: State,
    now: Micros,
    job: Job,
    kind: OperationKind,
    phase: OperationPhase,
    deadline_us: Micros | None = None,
    more: dict[str, int | str] | None = None,
    target: RunKey | None = None,
) -> Operation:
    cluster = state.cluster
    state.put(state.cluster_table, 0, with_changes(cluster, next_operation=cluster.next_operation + 1))
    source = RunKey(job.id, job.run)
    noted = tuple(sorted((more or {}).items()))
    row = Operation(cluster.next_operation, kind, phase, job.id, source, now, now, target, deadline_us, more=noted)
    state.put(state.operations, row.id, row)
    return row


def advance(
    state: State, now: Micros, operation: Operation, phase: OperationPhase, deadline_us: Micros | None = None
) -> Operation:
    """Moves the operation to its next phase."""
    after = with_changes(operation, phase=phase, phase_us=now, deadline_us=deadline_us)
    state.put(state.operations, operation.id, after)
    return after


def turn_into(
    state: State,
    now: Micros,
    operation: Operation,
    kind: OperationKind,
    phase: OperationPhase,
    more: dict[str, int],
    deadline_us: Micros | None = None,
    target: RunKey | None = None,
) -> Operation:
    """Turns the operation into one of another kind with the same number: those that wait are served in the order of numbers."""
    noted = tuple(sorted({**dict(operation.more), **more}.items()))
    after = with_changes(operation, kind=kind, phase=phase, phase_us=now, deadline_us=deadline_us, target=target, more=noted)
    state.put(state.operations, operation.id, after)
    return after


def note_phase(state: State, now: Micros, operation: Operation, text: str) -> None:
    """Notes in the rows of the job's runs how long the phase took that ends now."""
    for run in state.runs_of(operation.job_id):
        took = PhaseTime(operation.kind, operation.phase, operation.phase_us, now - operation.phase_us, text)
        state.put(state.runs, run.key, with_changes(run, phases=(*run.phases, took)[-KEPT:]))


def end(state: State, operation: Operation) -> None:
    state.put(state.operations, operation.id, None)


def cut_short(state: State, now: Micros, job_id: int, why: str) -> None:
    """Ends the job's operation, if it has one: its runs are stopped, or continue where they are."""
    operation = operation_of(state, job_id)
    if operation is not None:
        note_phase(state, now, operation, why)
        release_targets(state, now, operation, why)
        end(state, operation)
        if operation.kind is OperationKind.MIGRATE:
            not_migrated(state, now, job_id, why)


def not_migrated(state: State, now: Micros, job_id: int, why: str) -> None:
    """Says in the job's story that it does not move to its destination."""
    run = state.jobs.rows[job_id].run
    log_event(state, now, job_id, EventKind.MIGRATION_FAILED, run=run, reason=Reason.MIGRATED, text=why)


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
            over = with_changes(run, phase=RunPhase.ENDED, ended_us=now, stop_reason=StopReason.MIGRATED, phases=(took,))
            if run.group:
                mask = devices_released(state, [run])[run.node]
                state.put(state.runs, run.key, with_changes(over, group=0, parked_mib=0))
                leave(state, run)
                if run.guaranteed and mask:
                    give_back(state, run.node, mask)
            else:
                state.put(state.runs, run.key, over)
                release_cells(state, run)
