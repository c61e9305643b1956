"""What becomes of an earmark: it takes what its victims leave, has some time from when all is there, and is dropped.

It begins with an action of a plan (`enact`), and what is kept goes to its job as that is placed.
"""

from collections.abc import Iterable

from scheduler_service.core.allocation.bindings import give_back
from scheduler_service.core.model import EventKind, OperationPhase, Reason, Run
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.values import Micros, Vector, add, least, sub
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_NONE = Reason.NONE


def fill_earmark(state: State, now: Micros, operation_id: int, victim: Run, released: Vector) -> Vector:
    """Moves what the earmark still misses from what was released; returns what it took. Of devices that it names it takes
    those, and no others."""
    operation = state.operations.rows[operation_id]
    if operation.devices:
        mask = operation.mask
        kept = with_share(operation.want, (mask & ~state.held_devices.get(operation.node, 0)).bit_count(), mask.bit_count())
    else:
        kept = add(operation.kept, least(released, sub(operation.want, operation.kept)))
    victims = tuple(key for key in operation.victims if key != victim.key)
    phase = operation.phase if victims else OperationPhase.READY
    state.put(state.operations, operation_id, changed(operation, kept=kept, victims=victims, phase=phase))
    if not victims:
        start_earmark_clock(state, now, operation.job_id)
    return least(released, sub(kept, operation.kept))


def with_share(want: Vector, count: int, of: int) -> Vector:
    """So many `of` the devices that are wanted, each with its share of the rest, which is there as soon as the device is. One
    that kept more would keep what others' devices carry."""
    return Vector(*(amount * count // of for amount in want))


def start_earmark_clock(state: State, now: Micros, job_id: int) -> None:
    """Once everything is kept that the job waits for, on all of its nodes, it has some time to start there; not before."""
    earmarks = [state.operations.rows[i] for i in sorted(state.earmarks_of[job_id])]
    complete = all(earmark.phase is OperationPhase.READY for earmark in earmarks)
    deadline = now + state.settings.earmark_ttl_us if complete else None
    for earmark in earmarks:
        if earmark.deadline_us != deadline:
            state.put(state.operations, earmark.id, changed(earmark, deadline_us=deadline))


def drop_earmarks(state: State, now: Micros, job_id: int, why: str, starts_on: Iterable[int] = ()) -> None:
    """Frees what is kept for the job, if anything is. Victims that were told to leave go on leaving.

    Where the job starts on the very nodes (`starts_on`) the earmarks have done their work, which is no news for the story.
    """
    if job_id not in state.earmarks_of:
        return
    for operation_id in sorted(state.earmarks_of[job_id]):
        operation = state.operations.rows[operation_id]
        state.put(state.operations, operation_id, None)
        if operation.devices and not starts_on:
            give_back(state, operation.node, operation.mask)
        if operation.node not in starts_on:
            log_event(state, now, job_id, EventKind.EARMARK_DROPPED, node=operation.node, text=why)
    job = state.jobs.rows[job_id]
    if job.reason is Reason.WAITING_FOR_VICTIMS and not starts_on:  # the policy may not come to look at it again in this step
        state.put(state.jobs, job_id, changed(job, reason=_NONE, detail="", cause_job=0))
