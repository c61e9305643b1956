"""Rows of operations: how one begins, advances to its next phase, and ends. `core.operations` says what the phases mean."""

from scheduler_service.core.allocation.targets import release_targets
from scheduler_service.core.model import EventKind, Job, OperationKind, OperationPhase, Reason, RunKey
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import KEPT, PhaseTime
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.values import Micros
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
    state.put(state.cluster_table, 0, changed(cluster, next_operation=cluster.next_operation + 1))
    source = RunKey(job.id, job.run)
    noted = tuple(sorted((more or {}).items()))
    row = Operation(cluster.next_operation, kind, phase, job.id, source, now, now, target, deadline_us, more=noted)
    state.put(state.operations, row.id, row)
    return row


def advance(
    state: State, now: Micros, operation: Operation, phase: OperationPhase, deadline_us: Micros | None = None
) -> Operation:
    """Moves the operation to its next phase."""
    after = changed(operation, phase=phase, phase_us=now, deadline_us=deadline_us)
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
    after = changed(operation, kind=kind, phase=phase, phase_us=now, deadline_us=deadline_us, target=target, more=noted)
    state.put(state.operations, operation.id, after)
    return after


def note_phase(state: State, now: Micros, operation: Operation, text: str) -> None:
    """Notes in the rows of the job's runs how long the phase took that ends now."""
    for run in state.runs_of(operation.job_id):
        took = PhaseTime(operation.kind, operation.phase, operation.phase_us, now - operation.phase_us, text)
        state.put(state.runs, run.key, changed(run, phases=(*run.phases, took)[-KEPT:]))


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
