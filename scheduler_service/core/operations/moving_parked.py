"""Parked jobs that continue elsewhere: what is special about a migration whose source is parked.

The operation of the park becomes that of the migration, and keeps its number. While the destination makes itself ready, the
runs stay parked; then they save without their devices, and exit.

    what fails                                        what becomes of the job
    the destination, before the runs were to save     it is parked as before; after three times it waits for its own devices
    the save of a job of one task                     it is parked as before, and does not go elsewhere
    the save of a task of a gang                      others may have left: it is stopped, and begins from its last checkpoint
    anything later                                    as in any migration: it begins from what was saved
"""

from scheduler_service.core.allocation.operations import (
    begin,
    not_migrated,
    note_phase,
    operation_of,
    release_targets,
    turn_into,
)
from scheduler_service.core.allocation.transitions import show, stop_job
from scheduler_service.core.errors import PlanRefused, require
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
from scheduler_service.core.model.operations import MOVES, PARKED_FROM, Operation
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

MOST_MOVES = 3
"""After this many moves that came to nothing, a job moves only if its user says so."""
_SAME_NODES = "same_nodes"
_PLACES = (OperationPhase.PARKED, OperationPhase.WAITING)


def park_of(state: State, job_id: int) -> Operation | None:
    """The park of a job that is parked; None: it is not parked, or is on its way."""
    operation = operation_of(state, job_id)
    if operation is None or operation.kind is not OperationKind.PARK or operation.phase not in _PLACES:
        return None
    return operation


def check_can_save(run: Run) -> None:
    """Raises PlanRefused for a parked run that cannot save."""
    if run.parking is None or not run.parking.saves:
        raise PlanRefused(
            f"run {run.key} cannot save its work while it is parked (a program with job.checkpointable can): resume it first"
        )


def may_move(state: State, operation: Operation) -> bool:
    """Whether the job of this park may move without its user asking for it."""
    runs = state.runs_of(operation.job_id)
    job = state.jobs.rows[operation.job_id]
    can_save = all(run.parking is not None and run.parking.saves for run in runs)
    whole = len(runs) == len(job.launch_spec.tasks())
    return can_save and whole and int(operation.note_of(MOVES)) < MOST_MOVES


def becomes_move(
    state: State,
    now: Micros,
    park: Operation,
    back_to: OperationPhase,
    target: RunKey,
    deadline_us: Micros,
    same_nodes: bool,
) -> None:
    """Turns a park into a migration. The job returns to the phase `back_to` if that fails."""
    note_phase(state, now, park, "")
    more = {PARKED_FROM: int(back_to), _SAME_NODES: int(same_nodes)}
    turn_into(state, now, park, OperationKind.MIGRATE, OperationPhase.WARMING, more, deadline_us, target)
    show(state, with_changes(state.jobs.rows[park.job_id], suspend_requested=False))


def describe_destination(operation: Operation, names: str) -> str:
    """Describe to people where the job of a migration goes."""
    return "other devices of its node" if operation.note_of(_SAME_NODES) else names


def back_to_park(state: State, now: Micros, operation: Operation, why: str, phase: OperationPhase | None = None) -> None:
    """Ends the migration of a parked job, which is parked as before, or in this phase."""
    note_phase(state, now, operation, why)
    release_targets(state, now, operation, why)
    phase = phase or OperationPhase(int(operation.note_of(PARKED_FROM)))
    moves = {MOVES: int(operation.note_of(MOVES)) + 1}
    turn_into(state, now, operation, OperationKind.PARK, phase, moves)
    show(state, with_changes(state.jobs.rows[operation.job_id], suspend_requested=phase is OperationPhase.PARKED))


def not_saved(state: State, now: Micros, run: Run, why: str) -> None:
    """A parked run was to save and exit. It could not, and its node keeps it parked."""
    operation, job = operation_of(state, run.job_id), state.jobs.rows[run.job_id]
    if run.stop_reason is not StopReason.MIGRATED or len(job.launch_spec.tasks()) > 1:
        forgotten = with_changes(run, stop_us=now, stop_grace_us=0, overdue_us=None)  # by its node
        kept = with_changes(forgotten, generation=run.generation + 1)
        state.put(state.runs, run.key, kept)
        if run.stop_reason is StopReason.MIGRATED:
            _log_failure(state, now, job, run, why)
            stop_job(state, now, job, StopReason.PARKED, Reason.PARKED, most_us=0)
        return
    assert run.parking is not None  # it is parked
    parking, generation = run.parking._replace(saves=False), run.generation + 1
    goes_on = with_changes(run, stop_reason=None, stop_us=None, stop_grace_us=0, overdue_us=None)
    stays = with_changes(goes_on, phase=RunPhase.PARKED, parking=parking, generation=generation)
    state.put(state.runs, run.key, stays)
    if operation is not None:
        back_to_park(state, now, operation, why)
    else:  # the destination was lost meanwhile
        begin(state, now, job, OperationKind.PARK, OperationPhase.WAITING)
        show(state, job)
    _log_failure(state, now, job, run, why)


def _log_failure(state: State, now: Micros, job: Job, run: Run, why: str) -> None:
    text = f"it could not save while it was parked: {why}"
    log_event(state, now, job.id, EventKind.MIGRATION_FAILED, run=run.run, node=run.node, reason=Reason.MIGRATED, text=text)


def stay_parked(state: State, now: Micros, operation: Operation) -> None:
    """Keeps the job parked: its user wants it suspended, before it has moved."""
    require(operation.phase is OperationPhase.WARMING, f"job {operation.job_id} is on its way")
    why = "its user suspended it again"
    back_to_park(state, now, operation, why, OperationPhase.PARKED)
    not_migrated(state, now, operation.job_id, why)
