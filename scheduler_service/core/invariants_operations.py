"""Invariants of operations, which hold after every step."""

from scheduler_service.core.allocation.operations import targets
from scheduler_service.core.errors import claim
from scheduler_service.core.model import JobState, OperationKind, OperationPhase, Run, RunPhase, StopReason
from scheduler_service.core.model.operations import OBSERVING, Operation
from scheduler_service.core.state.state import State


def check_operation(state: State, operation: Operation) -> None:
    """The job of an operation is live and has no other one, its runs exist, and its times are in order. Raises Broken."""
    what = f"operation {operation.id}"
    claim(operation.id < state.cluster.next_operation, f"{what} has a number that was not given yet")
    claim(operation.job_id in state.jobs.rows, f"{what} is of job {operation.job_id}, which is not live")
    known = [index[operation.job_id] for index in (state.operation_of, state.vacating_of) if operation.job_id in index]
    claim(known == [operation.id], f"job {operation.job_id} has the operations {known}, and not {what} alone")
    for key in (operation.source, operation.target):
        claim(key is None or key.job_id == operation.job_id, f"{what} changes run {key} of another job")
    claim(operation.begun_us <= operation.phase_us <= state.cluster.clock_us, f"{what} is in a phase that has not begun")
    if operation.kind in OBSERVING:
        _check_vacating(state, operation, what)
        return
    launch = state.jobs.rows[operation.job_id].run
    launches = (operation.source.run, operation.target.run if operation.target else 0)
    claim(launch in launches, f"{what} changes run {operation.source}, and the job is at run {launch}")
    claim(operation.job_id in state.active, f"{what} is of job {operation.job_id}, which has no active run")
    claim(operation.target is None or operation.target in state.runs.rows, f"{what} goes to a run that is not there")
    if operation.kind is OperationKind.PARK:
        _check_park(state, operation, what)
    if operation.kind is OperationKind.MIGRATE:
        _check_migration(state, operation, what)
    due = operation.deadline_us
    claim(due is None or due > operation.phase_us, f"{what} has a deadline before its phase")
    claim((due is not None) == (operation.phase in _LIMITED), f"{what} is {operation.phase.name} and has the deadline {due}")


_LIMITED = {OperationPhase.PARKING, OperationPhase.RESUMING, OperationPhase.WARMING}
"""Phases with a deadline, because a node has to act. The others wait for a user, for devices, or for runs that have a limit."""
_RUNS = {
    OperationPhase.PARKING: {RunPhase.PARKING},
    OperationPhase.PARKED: {RunPhase.PARKED},
    OperationPhase.WAITING: {RunPhase.PARKED},
    OperationPhase.RESUMING: {RunPhase.RESUMING, RunPhase.RUNNING},
}


def _check_park(state: State, operation: Operation, what: str) -> None:
    """The runs of a park are in phases that match its own, and hold their devices unless all of them are parked."""
    for run in state.runs_of(operation.job_id):
        claim(run.phase in _RUNS[operation.phase], f"{what} is {operation.phase.name}, and run {run.key} is {run.phase.name}")
        claim(run.is_parked == (run.phase is RunPhase.PARKED), f"run {run.key} is {run.phase.name} and has {run.devices}")


def _check_migration(state: State, operation: Operation, what: str) -> None:
    """Until the migration starts, its job is at the source, and the destination's runs hold their places besides the launch."""
    job = state.jobs.rows[operation.job_id]
    claim(operation.target is not None, f"{what} goes nowhere")
    at = operation.target if operation.phase is OperationPhase.STARTING else operation.source
    claim(at is not None and job.run == at.run, f"{what} is {operation.phase.name}, and job {job.id} is at run {job.run}")
    runs = targets(state, operation)
    waiting = operation.phase in (OperationPhase.WARMING, OperationPhase.SAVING)
    claim(all(run.awaits is waiting for run in runs), f"{what} is {operation.phase.name}, and its runs are {runs}")
    claim(not waiting or len(runs) == len(job.launch_spec.tasks()), f"{what} has a part of its places: {runs}")
    sources = state.runs_of(job.id) if waiting else []
    for run in sources:
        saves = run.phase.exits_soon and run.stop_reason is StopReason.MIGRATED
        claim(run.is_parked == operation.is_of_parked, f"{what} is of run {run.key}, which is {run.phase.name}")
        expected = saves if operation.phase is OperationPhase.SAVING else not run.phase.exits_soon
        claim(expected, f"{what} is {operation.phase.name}, and run {run.key} is {run.phase.name}")


_STOPPED_FOR = {OperationKind.VACATE: StopReason.SUSPENDED, OperationKind.RESIZE: StopReason.RESIZED}


def _check_vacating(state: State, operation: Operation, what: str) -> None:
    """The job of a vacate or resize is stopped for it, waits in its queue, or is starting again."""
    job, kind, phase = state.jobs.rows[operation.job_id], operation.kind, operation.phase
    claim(operation.target is None and operation.deadline_us is None, f"{what} has a destination or a deadline")
    runs = state.runs_of(job.id)
    match phase:
        case OperationPhase.SAVING:
            claim(bool(runs) and job.run == operation.source.run, f"{what} is SAVING, and job {job.id} is at run {job.run}")
            for run in runs:
                stopped = run.phase.exits_soon and run.stop_reason is _STOPPED_FOR[kind]
                claim(stopped, f"{what} is SAVING, and run {run.key} is {run.phase.name} for {run.stop_reason}")
        case OperationPhase.WAITING:
            claim(kind is OperationKind.RESIZE and job.state is JobState.QUEUED, f"{what} waits, and job {job.id} does not")
        case OperationPhase.STARTING:
            claim(kind is OperationKind.RESIZE and bool(runs), f"{what} starts nothing")
            claim(job.run > operation.source.run, f"{what} is STARTING, and job {job.id} is at run {job.run}")
            claim(not any(run.phase.exits_soon for run in runs), f"{what} is STARTING, and job {job.id} is stopped")
            claim(state.begun.get(job.id, 0) < len(runs), f"{what} is STARTING, and all runs of job {job.id} execute")
        case _:
            claim(False, f"{what} is {phase.name}")


def check_warming(state: State, run: Run) -> None:
    """A run that waits for another one belongs to a migration."""
    claim(run.awaits is run.phase.awaits_source, f"run {run.key} is {run.phase.name} and waits: {run.awaits}")
    if run.awaits:
        operation = state.operations.rows.get(state.operation_of.get(run.job_id, 0))
        target = None if operation is None else operation.target
        claim(target is not None and target.run == run.run, f"run {run.key} waits, and no migration goes to it")
        claim(run.key not in state.active.get(run.job_id, set()), f"run {run.key} waits, and is one of the job's launch")
        job = state.jobs.rows[run.job_id]
        claim(run.run == job.numbered > job.run, f"run {run.key} waits, and its number is not that of the next launch")
        claim(run.asked == job.launch_spec.tasks()[run.task], f"run {run.key} waits, and its job asks for another place")


def check_parking(state: State, run: Run) -> None:
    """A run that is parked, or on its way, belongs to an operation, and what it remembers matches its phase."""
    parking = run.parking
    moves = run.phase in (RunPhase.PARKING, RunPhase.PARKED, RunPhase.RESUMING)
    claim(not moves or run.job_id in state.operation_of, f"run {run.key} is {run.phase.name} without an operation")
    if parking is None:
        claim(not moves, f"run {run.key} is {run.phase.name} and was never told to park")
        return
    claim(parking.underway or not moves, f"run {run.key} is {run.phase.name}, and its park is over")
    charged = run.is_parked or (run.parked_mib and not run.group)  # members of share groups are parked in turns
    claim(parking.underway or not charged, f"run {run.key} is not parked and is charged for it")
    claim(run.is_parked == (parking.since_us is not None), f"run {run.key} is parked since {parking.since_us}")
    claim(bool(parking.rung) or not run.is_parked, f"run {run.key} is parked, and nobody knows how")
    claim(bool(parking.rung) or not parking.saves, f"run {run.key} was not parked and can save as one that is")
    claim(bool(parking.rung) or not parking.residue_mib, f"run {run.key} was not parked and has left a residue")
