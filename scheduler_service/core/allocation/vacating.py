"""Vacates and resizes: operations that say how far a job is that saves its work and exits, and what each phase takes (ADR 54).

    kind     phase      begins when                               ends when                              and then
    VACATE   SAVING     the runs are stopped, for a suspension    the last of them has ended             it ends
    RESIZE   SAVING     the runs are stopped, for another size    the last of them has ended             WAITING, if it queues
             WAITING    the job queues                            it is placed                           STARTING
             STARTING   its next launch is placed                 the last run of the launch executes    it ends

They observe what happens to the job, and decide nothing: no plan and no request is refused for them. Whatever else stops the
job, or ends it, ends the operation. So a new leader has nothing to roll back: it continues the job, and the row follows.
"""

from scheduler_service.core.allocation.operations import advance, begin, end, note_phase
from scheduler_service.core.model import EventKind, Job, OperationKind, OperationPhase, Reason, Run, StopReason
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import KEPT, PhaseTime
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_SAVING, _WAITING, _STARTING = OperationPhase.SAVING, OperationPhase.WAITING, OperationPhase.STARTING
_KINDS = {StopReason.SUSPENDED: OperationKind.VACATE, StopReason.RESIZED: OperationKind.RESIZE}
_SAVED, _WAITED = "saved_us", "waited_us"
"""Keys under which an operation notes how long its phases took, for the last line of the story."""


def vacating(state: State, job_id: int) -> Operation | None:
    """The vacate or resize of the job, or None."""
    number = state.vacating_of.get(job_id)
    return None if number is None else state.operations.rows[number]


def stopping(state: State, now: Micros, job: Job, why: StopReason) -> None:
    """Begins or ends an operation because the runs of the job are about to be stopped."""
    kind, operation = _KINDS.get(why), vacating(state, job.id)
    if operation is not None:
        if operation.kind is kind and operation.phase is _SAVING:
            return  # suspended, resumed and suspended again, say: it has been saving since the first time
        note_phase(state, now, operation, f"stopped for another reason: {why.name}")
        end(state, operation)
    if kind is not None:
        begin(state, now, job, kind, _SAVING)


def phases_at_end(state: State, now: Micros, run: Run) -> tuple[PhaseTime, ...]:
    """The phase times to keep in the row of a run that ends."""
    operation = vacating(state, run.job_id)
    if operation is None or (operation.phase is _STARTING and run.started_us is not None):
        return run.phases
    text = "" if operation.phase is _SAVING else "it did not start"
    took = PhaseTime(operation.kind, operation.phase, operation.phase_us, now - operation.phase_us, text)
    return (*run.phases, took)[-KEPT:]


def launch_over(state: State, now: Micros, job: Job, goes_on: bool) -> str:
    """Takes the end of a launch's last run; `goes_on`: the job queues again, as far as is known. Returns text for the story."""
    operation = vacating(state, job.id)
    if operation is None:
        return ""
    took = now - operation.phase_us
    if operation.phase is not _SAVING:
        end(state, operation)
        return ""
    if operation.kind is OperationKind.RESIZE and goes_on:
        advance(state, now, _with_note(operation, _SAVED, took), _WAITING)
    else:
        end(state, operation)
    return f"it took {took / SECOND:.2f} s to stop"


def not_queued(state: State, job_id: int) -> None:
    """Ends the operation of a job that has ended."""
    if (operation := vacating(state, job_id)) is not None:
        end(state, operation)


def note_placed(state: State, now: Micros, job: Job) -> None:
    """Advances the operation, as the next launch of the job has its place."""
    operation = vacating(state, job.id)
    if operation is None:
        return
    note_phase(state, now, operation, "")
    advance(state, now, _with_note(operation, _WAITED, now - operation.phase_us), _STARTING)


def end_if_started(state: State, now: Micros, job_id: int) -> None:
    """Ends the resize if all runs that are left execute. Called when a run of the job starts to execute, or ends."""
    operation = vacating(state, job_id)
    if operation is None or operation.phase is not _STARTING:
        return
    runs = state.runs_of(job_id)
    if state.begun.get(job_id, 0) < len(runs):
        return
    saved, waited = (int(operation.note_of(name)) / SECOND for name in (_SAVED, _WAITED))
    size = len(state.jobs.rows[job_id].launch_spec.tasks())
    parts = f"stopped in {saved:.2f} s, queued for {waited:.2f} s, started in {(now - operation.phase_us) / SECOND:.2f} s"
    text = f"it has {size} task{'' if size == 1 else 's'} now: {parts}"
    note_phase(state, now, operation, "")
    end(state, operation)
    first = runs[0]
    log_event(state, now, job_id, EventKind.RESIZED, run=first.run, node=first.node, reason=Reason.RESIZED, text=text)


def _with_note(operation: Operation, name: str, took: Micros) -> Operation:
    return with_changes(operation, more=tuple(sorted({**dict(operation.more), name: took}.items())))
