"""How a run that is parked, or is being parked, resumes; see `parking`."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from scheduler_service.core.allocation.operations import advance, end, note_phase, operation_of
from scheduler_service.core.allocation.transitions import show, stop_job
from scheduler_service.core.messages import RunResumed
from scheduler_service.core.model import EventKind, Job, Node, NodeState, OperationPhase, Reason, Run, RunPhase, StopReason
from scheduler_service.core.model.launch_time import executed_us
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


class HeldUp(NamedTuple):
    """Why a parked run does not resume now."""

    node: int
    why: str
    job_id: int = 0
    """The job behind it, or 0."""


def unpark(state: State, now: Micros, operation: Operation) -> None:
    """Resumes a parked job as soon as its devices are idle. If it is still being parked, takes that back."""
    match operation.phase:
        case OperationPhase.PARKING:
            take_back(state, now, operation, "its user has it go on")
        case OperationPhase.PARKED:
            note_phase(state, now, operation, "")
            waiting = advance(state, now, operation, OperationPhase.WAITING)
            show(state, with_changes(state.jobs.rows[operation.job_id], suspend_requested=False))
            try_to_resume(state, now, waiting)
        case OperationPhase.WAITING | OperationPhase.RESUMING:
            pass


def stay_parked(state: State, now: Micros, operation: Operation) -> None:
    """Takes back a resume that waits for devices."""
    note_phase(state, now, operation, "its user suspended it again")
    advance(state, now, operation, OperationPhase.PARKED)
    show(state, with_changes(state.jobs.rows[operation.job_id], suspend_requested=True))


def resume_waiting(state: State, now: Micros, chosen: Collection[int] | None = None) -> None:
    """Resumes the parked jobs whose devices are idle, or the chosen ones of these, in the order in which they were parked."""
    for number in sorted(state.waiting_operations if chosen is None else state.waiting_operations.intersection(chosen)):
        try_to_resume(state, now, state.operations.rows[number])


def try_to_resume(state: State, now: Micros, operation: Operation) -> None:
    """Gives the runs their devices back if all of these are idle, and tells them to resume."""
    job, runs = state.jobs.rows[operation.job_id], state.runs_of(operation.job_id)
    if next(what_holds_up(state, runs), None) is not None:
        return
    note_phase(state, now, operation, "")
    limit = job.time_limit_us and now + max(job.time_limit_us - job.ran_us - executed_us(runs, now), 0)
    for run in state.runs_of(operation.job_id):
        assert run.parking is not None
        parking = run.parking
        away = now - (now if parking.since_us is None else parking.since_us)
        back = parking._replace(devices=(), since_us=None, before_us=parking.before_us + away)
        with_devices = with_changes(run, devices=parking.devices, demand=run.asked, parking=back)
        state.put(state.runs, run.key, with_changes(with_devices, phase=RunPhase.RESUMING, generation=run.generation + 1))
    deadline = now + 2 * state.settings.park_limit_us
    advance(state, now, operation, OperationPhase.RESUMING, deadline)
    show(state, with_changes(job, limit_us=limit or None))


def what_holds_up(state: State, runs: Sequence[Run]) -> Iterator[HeldUp]:
    """All that these parked runs of a job had and that is not idle."""
    wanted: dict[int, int] = {}
    taken: set[int] = set()
    for run in runs:
        node = state.nodes.rows[run.node]
        if not state.free_resources.is_open(node.id):
            yield HeldUp(node.id, _closed_text(node))
        for index in run.placed_on:
            for held in _of_device(state, node, index):
                taken.add(node.id)
                yield held
        wanted[node.id] = wanted.get(node.id, 0) + len(run.placed_on)
    for node_id, count in wanted.items():
        free = state.free_resources.free(node_id).devices
        if free < count and node_id not in taken:  # earmarks that name no devices keep some all the same
            waiting = sorted(row.job_id for row in state.earmarks.rows.values() if row.node == node_id and not row.devices)
            why = f"{count} devices of node {state.nodes.rows[node_id].name} are to be free, and {free} are"
            yield HeldUp(node_id, why, waiting[0] if waiting else 0)


def _closed_text(node: Node) -> str:
    return f"node {node.name} is {'silent' if node.state is NodeState.SILENT else 'drained'}"


def _of_device(state: State, node: Node, index: int) -> Iterator[HeldUp]:
    if state.idle_devices.get(node.id, 0) >> index & 1:
        return
    what = f"device {index} of node {node.name}"
    device = state.devices.rows.get((node.id, index))
    if device is not None and device.fault:
        yield HeldUp(node.id, f"{what} is faulty: {device.fault}")
    for holder in state.holders(node.id, index):
        yield HeldUp(node.id, f"job {holder.job_id} has {what}", holder.job_id)
    for earmark in sorted(state.earmarks.rows.values(), key=lambda row: row.id):
        if earmark.node == node.id and earmark.mask >> index & 1:
            yield HeldUp(node.id, f"{what} is kept for job {earmark.job_id}", earmark.job_id)


# ---- reports and what follows from them ---------------------------------------------------------------------------------


def run_resumed(state: State, event: RunResumed, run: Run, now: Micros) -> None:
    """A run executes again."""
    operation = operation_of(state, run.job_id)
    if operation is None or run.phase is not RunPhase.RESUMING:
        return
    state.put(state.runs, run.key, at_work(run))
    check_resumed(state, now, operation, phases_text(event.phases))


def at_work(run: Run) -> Run:
    assert run.parking is not None
    parking = run.parking._replace(underway=False, rung="", residue_mib=0, saves=False)
    return with_changes(run, phase=RunPhase.RUNNING, parking=parking, parked_mib=0)


def check_resumed(state: State, now: Micros, operation: Operation, text: str) -> None:
    """Ends the operation once all tasks execute again."""
    runs = state.runs_of(operation.job_id)
    if not all(run.phase is RunPhase.RUNNING for run in runs):
        return
    note_phase(state, now, operation, text)
    end(state, operation)
    job = show(state, state.jobs.rows[operation.job_id])
    took = f"resumed in place in {(now - operation.phase_us) / SECOND:.2f} s"
    log_event(state, now, job.id, EventKind.UNPARKED, run=job.run, node=runs[0].node, text=f"{took}: {text}" if text else took)


def take_back(state: State, now: Micros, operation: Operation, why: str) -> Job:
    """Takes back a park under way: all tasks of the job are told to resume. They still hold their devices."""
    note_phase(state, now, operation, why)
    end(state, operation)
    for run in state.runs_of(operation.job_id):
        state.put(state.runs, run.key, with_changes(at_work(run), generation=run.generation + 1))
    return show(state, with_changes(state.jobs.rows[operation.job_id], suspend_requested=False))


def give_up(state: State, now: Micros, run: Run, why: str, most_us: Micros | None = None) -> None:
    """Stops a job with a run that cannot resume. It starts again from its checkpoint unless its user wants it suspended."""
    job = state.jobs.rows[run.job_id]
    text = f"it cannot go on after a park: {why}"
    log_event(state, now, job.id, EventKind.PARK_REFUSED, run=job.run, node=run.node, reason=Reason.PARKED, text=text)
    stop_job(state, now, job, StopReason.PARKED, Reason.PARKED, most_us=most_us)


def phases_text(phases: tuple[tuple[str, Micros], ...]) -> str:
    return ", ".join(f"{name} {took / SECOND:.3f} s" for name, took in phases)


def node_name(state: State, run: Run) -> str:
    return f"node {state.nodes.rows[run.node].name}"
