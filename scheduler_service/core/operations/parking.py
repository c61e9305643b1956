"""Parks: a run leaves its devices, stays in the memory of its node, and resumes there later (Gandiva, section 3.1).

    phase      the runs of the job                        ends with                            and then
    PARKING    were told to park, and hold their devices  the last report that one is parked   PARKED; their devices are free
                                                          a refusal, or the deadline           they continue, or save and stop
                                                          a resume                             they continue
    PARKED     hold host memory alone                     a resume                             WAITING
    WAITING    the same                                   their devices, all of them idle      RESUMING; they hold these again
    RESUMING   were told to resume                        the last report that one executes    the operation ends
                                                          a failure, or the deadline           they are stopped: the job queues

The tasks of a gang are parked and resumed together: until the last of them is parked, all hold their devices. Whatever stops
the job ends the operation. A parked run that is stopped is killed at once. If it continues elsewhere instead of waiting for
its devices, it saves without them (`moving_parked`).
"""

from scheduler_service.core.allocation.bindings import give_back
from scheduler_service.core.allocation.operations import advance, begin, end, note_phase, operation_of
from scheduler_service.core.allocation.transitions import show, stop_job
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import Park, RunParked, RunParkRefused, Unpark
from scheduler_service.core.model import (
    EventKind,
    Job,
    NodeState,
    OperationKind,
    OperationPhase,
    Reason,
    Run,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.parking import Parking
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.values import SECOND, Micros, mask_of
from scheduler_service.core.operations.moving_parked import not_saved
from scheduler_service.core.operations.resuming import check_resumed, give_up, node_name, phases_text, take_back, unpark
from scheduler_service.core.sharing.equations import limit_mib
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

MIB = 1 << 20
FALLBACK = "fallback"
"""Noted in an operation whose job saves its work and stops if it cannot be parked."""
BY_USER = "user"
"""Noted in an operation that a user asked for: policies leave the job parked."""


# ---- to park -----------------------------------------------------------------------------------------------------------


def park(state: State, now: Micros, job: Job, by_user: bool, fallback: bool) -> None:
    """Tells the runs of a running job to park. `fallback`: if they cannot be parked, they are told to save and stop. Raises
    PlanRefused, with nothing changed, if it is known that they cannot be parked."""
    _check_can_park(state, job)
    before, limit = state.savepoint(), state.settings.park_limit_us
    try:
        for run in state.runs_of(job.id):
            was = run.parking or Parking(0)
            parking = Parking(was.times + 1, True, before_us=was.before_us, limit_us=limit)
            bound, spare = _most_mib(state, run), _spare_mib(state, run)
            require(not bound or spare > 0, _no_room(state, run))
            told_to = with_changes(run, phase=RunPhase.PARKING, parking=parking, parked_mib=min(bound, spare))
            state.put(state.runs, run.key, with_changes(told_to, generation=run.generation + 1))
            if state.host is not None:
                require(min(state.host.free(run.node)) >= 0, _no_room(state, run))
    except PlanRefused:
        state.undo(before)
        raise
    more: dict[str, int | str] = dict.fromkeys([*([FALLBACK] if fallback else []), *([BY_USER] if by_user else [])], 1)
    begin(state, now, job, OperationKind.PARK, OperationPhase.PARKING, now + 2 * limit, more)
    show(state, with_changes(job, suspend_requested=True))


def _check_can_park(state: State, job: Job) -> None:
    runs = state.runs_of(job.id)
    require(bool(runs), f"job {job.id} does not run")
    require(job.id not in state.operation_of, f"another operation on job {job.id} is under way")
    require(job.sampling is None, f"job {job.id} is being sampled")
    for run in runs:
        require(run.phase is RunPhase.RUNNING, f"run {run.key} is {run.phase.name}: only a running one can be parked")
        require(bool(run.demand.devices), f"run {run.key} has no devices that others could use meanwhile")
        require(not run.group, f"run {run.key} shares its devices with others, and its node parks it in turns")
        node = state.nodes.rows[run.node]
        require(node.state is NodeState.UP, f"node {node.name} is silent: nobody there can park run {run.key}")
    require(len(runs) == len(job.launch_spec.tasks()), f"a task of job {job.id} has ended")


def _most_mib(state: State, run: Run) -> int:
    """The most host memory that the run's data on its devices can take."""
    rows = state.devices.rows
    return sum(limit_mib(rows[run.node, index].memory_mib, state.settings) for index in run.devices)


def _spare_mib(state: State, run: Run) -> int:
    """The memory of its node that can be kept for the run's data on its devices. If there are cells, a parked run has only what
    goes with no device: the rest is for jobs that get its devices."""
    spare = state.free_resources.free(run.node).memory_mib
    return spare if state.host is None else min(spare, state.host.free(run.node).memory_mib - run.demand.memory_mib)


def _no_room(state: State, run: Run) -> str:
    beside = "" if state.host is None else " beside what goes with its devices (host_percent)"
    return f"{node_name(state, run)} has too little memory or CPUs{beside} to keep run {run.key} parked"


# ---- reports -----------------------------------------------------------------------------------------------------------


def run_parked(state: State, event: RunParked, run: Run, now: Micros) -> None:
    """A node has parked a run. If this is not waited for any more, the run was told to resume since."""
    operation = operation_of(state, run.job_id)
    if operation is None or run.phase is not RunPhase.PARKING or run.parking is None:
        return
    needed = -(-event.moved_bytes // MIB)
    spare = state.free_resources.free(run.node).memory_mib + run.parked_mib
    if needed > spare:
        text = f"what it has on its devices takes {needed} MiB, and {node_name(state, run)} has {spare} MiB of memory for that"
        _refuse(state, now, operation, run, text)
        return
    rung, residue = event.rung or "unknown", -(-event.residue_bytes // MIB)
    parking = run.parking._replace(rung=rung, residue_mib=residue, saves=event.saves)
    state.put(state.runs, run.key, with_changes(run, parking=parking, parked_mib=needed))
    if state.host is not None and min(state.host.free(run.node)) < 0:
        _refuse(state, now, operation, run, f"{node_name(state, run)} has too little memory beside what goes with its devices")
    elif all(task.parking is not None and task.parking.rung for task in state.runs_of(run.job_id)):
        _all_parked(state, now, operation, phases_text(event.phases))


def _all_parked(state: State, now: Micros, operation: Operation, phases: str = "") -> None:
    """The last task of the job is parked: all devices are free for others."""
    runs = state.runs_of(operation.job_id)
    first, moved = runs[0], sum(run.parked_mib for run in runs)
    parking = first.parking or Parking()
    text = ", ".join(filter(None, (parking.rung, f"{moved} MiB, residue {parking.residue_mib} MiB", phases)))
    note_phase(state, now, operation, text)
    for run in state.runs_of(operation.job_id):
        leave_devices(state, now, run)
    took = now - operation.phase_us
    operation = advance(state, now, operation, OperationPhase.PARKED)
    job = with_changes(state.jobs.rows[operation.job_id], limit_us=None)
    show(state, job)
    said = f"parked in {took / SECOND:.2f} s: {text}"
    log_event(state, now, job.id, EventKind.PARKED, run=job.run, node=first.node, reason=Reason.PARKED, text=said)


def leave_devices(state: State, now: Micros, run: Run) -> None:
    """The run is parked: its devices are free for others."""
    assert run.parking is not None  # `park` gave it
    parking = run.parking._replace(devices=run.devices, since_us=now)
    demand, mask = run.demand._replace(devices=0), mask_of(run.devices)
    away = with_changes(
        run, phase=RunPhase.PARKED, devices=(), demand=demand, guaranteed=False, guarded_us=None, parking=parking
    )
    state.put(state.runs, run.key, away)
    if run.guaranteed:
        give_back(state, run.node, mask)


def park_refused(state: State, event: RunParkRefused, run: Run, now: Micros) -> None:
    """A node could not park a run, or not resume it; or a parked run could not save."""
    operation = operation_of(state, run.job_id)
    if run.phase.exits_soon:
        if run.is_parked and not event.lost:
            not_saved(state, now, run, event.why)
        return  # else it is stopped anyway
    if operation is None:
        if event.lost and run.parking is not None:  # the park was taken back while its node was at it
            give_up(state, now, run, event.why, most_us=0)
        elif not event.lost and run.group:
            _keeps_devices(state, now, run, event.why)
    elif run.phase is RunPhase.PARKING and not event.lost:
        _refuse(state, now, operation, run, event.why)
    elif run.phase in (RunPhase.PARKING, RunPhase.RESUMING) or event.lost:
        give_up(state, now, run, event.why, most_us=0)


def _keeps_devices(state: State, now: Micros, run: Run, why: str) -> None:
    """Logs that a member of a share group could not be parked at the end of its turn. Its node says so once for each plan."""
    where = f"on {node_name(state, run)} " if state.jobs.rows[run.job_id].spec.gang else ""
    text = f"not parked {where}for the turn of others, and keeps its devices until its next park: {why}"
    log_event(state, now, run.job_id, EventKind.PARK_REFUSED, run=run.key.run, node=run.node, reason=Reason.PARKED, text=text)


def _refuse(state: State, now: Micros, operation: Operation, run: Run, why: str) -> None:
    """The job is not parked: all of its tasks continue. If its user wants it suspended in any case, they save and stop."""
    fallback = bool(operation.note_of(FALLBACK))
    text = f"not parked: {why}; {'it saves its work and leaves' if fallback else 'it goes on'}"
    job = take_back(state, now, operation, text)
    log_event(state, now, job.id, EventKind.PARK_REFUSED, run=job.run, node=run.node, reason=Reason.PARKED, text=text)
    if fallback:
        stop_job(state, now, job, StopReason.SUSPENDED, Reason.SUSPENDED, suspend_requested=True)


# ---- other events ------------------------------------------------------------------------------------------------------


def act_on_overdue_phase(state: State, now: Micros, operation: Operation) -> None:
    """Acts on a phase that has taken too long. A silent node is given more time."""
    runs = state.runs_of(operation.job_id)
    limit = 2 * state.settings.park_limit_us
    first = runs[0]
    why = f"{node_name(state, first)} has not done it within {limit / SECOND:g} s"
    if operation.phase is OperationPhase.PARKING:
        _refuse(state, now, operation, first, why)
    elif operation.job_id in state.unreachable:
        state.put(state.operations, operation.id, with_changes(operation, deadline_us=now + limit))
    else:
        give_up(state, now, first, why)


def task_over(state: State, now: Micros, job_id: int) -> None:
    """A task has ended. With the last one its job's operation ends; else the others may all be parked, or all at work."""
    operation = operation_of(state, job_id)
    if operation is None:
        return
    runs = state.runs_of(job_id)
    if not runs:
        end(state, operation)
    elif operation.phase is OperationPhase.PARKING and all(run.parking is not None and run.parking.rung for run in runs):
        _all_parked(state, now, operation)
    elif operation.phase is OperationPhase.RESUMING:
        check_resumed(state, now, operation, "")


def keep_for_user(state: State, operation: Operation) -> bool:
    """Keeps a job that is parked, or moves from where it is parked, suspended for its user: policies leave it alone from now
    on. Returns whether they did not before."""
    parks = operation.kind is OperationKind.PARK and operation.phase is not OperationPhase.RESUMING
    moves = operation.is_of_parked and operation.phase is OperationPhase.WARMING
    if operation.note_of(BY_USER) or not (parks or moves):
        return False
    noted = tuple(sorted({**dict(operation.more), BY_USER: 1}.items()))
    state.put(state.operations, operation.id, with_changes(operation, more=noted))
    return True


# ---- actions of policies -----------------------------------------------------------------------------------------------


def park_for_policy(state: State, action: Park, now: Micros) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None:
        raise PlanRefused(f"there is no job {action.job_id}")
    park(state, now, job, by_user=False, fallback=False)
    log_event(state, now, job.id, EventKind.SUSPEND_REQUESTED, run=job.run, reason=Reason.PARKED, text=action.why)


def unpark_for_policy(state: State, action: Unpark, now: Micros) -> None:
    operation = operation_of(state, action.job_id)
    if operation is None or operation.kind is not OperationKind.PARK:
        raise PlanRefused(f"job {action.job_id} is not parked")
    if operation.phase in (OperationPhase.WAITING, OperationPhase.RESUMING):
        raise PlanRefused(f"job {action.job_id} resumes already")
    require(not operation.note_of(BY_USER), f"the user of job {action.job_id} has it parked")
    log_event(state, now, action.job_id, EventKind.RESUMED, run=operation.source.run, reason=Reason.PARKED, text=action.why)
    unpark(state, now, operation)
