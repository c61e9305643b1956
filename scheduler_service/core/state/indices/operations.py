"""Indices over operations: which job has one, which of them wait, and when their phases are given up."""

from scheduler_service.core.model import OperationPhase
from scheduler_service.core.model.operations import OBSERVING, Operation
from scheduler_service.core.state.indices.deadlines import set_deadline
from scheduler_service.core.state.indices.nonempty import set_or_drop
from scheduler_service.core.state.queue_keys import Deadline
from scheduler_service.core.state.tables import Tables

WAITING = OperationPhase.WAITING


def of_operation(state: Tables, old: Operation | None, new: Operation | None) -> None:
    row = new or old
    if row is None:
        return
    if row.kind in OBSERVING:
        set_or_drop(state.vacating_of, row.job_id, None if new is None else row.id)
        return
    if old is None or new is None:
        set_or_drop(state.operation_of, row.job_id, None if new is None else row.id)
    if new is not None and new.phase is WAITING:
        state.waiting_operations.add(row.id)
    else:
        state.waiting_operations.discard(row.id)
    before, after = old.deadline_us if old else None, new.deadline_us if new else None
    if before != after:
        set_deadline(state, Deadline.OPERATION, (row.id,), before, after)
    state.pending.policies = True
