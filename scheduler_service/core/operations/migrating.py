"""Migrations: a job continues at another node, which is ready before the job stops (Gandiva, section 4.2).

    phase      the runs of the job                           ends with                          and then
    WARMING    run; those of the next launch hold their      the last report that one is warm   SAVING: the job is told to stop
               devices, and make themselves ready            the deadline, or whatever else     the job runs on where it is
    SAVING     were told to save and stop                    the end of the last of them        STARTING: the next launch begins
                                                             anything but saved work, or a      what it means without the
                                                             destination that is lost           migration: the job queues, say
    STARTING   those of the next launch, which fetch the     the last report that one runs      the operation ends
               checkpoint and begin                          one that ends before it runs       the job queues, first of all

A parked job stays parked while its destination makes itself ready, and saves without its devices: see `moving_parked`.
The source keeps its checkpoint. So a job that does not begin at its destination has lost nothing: it begins from the same
checkpoint wherever it is placed next. Whatever else stops the job (a cancel, a preemption) ends the operation.
"""

from scheduler_service.core.allocation.operations import (
    advance,
    begin,
    cut_short,
    end,
    not_migrated,
    note_phase,
    operation_of,
    targets,
)
from scheduler_service.core.allocation.share_groups import starts_in_turn
from scheduler_service.core.allocation.transitions import stop_job
from scheduler_service.core.allocation.warming import warm
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.messages import GiveWay, Migrate, Share, Spot
from scheduler_service.core.model import (
    EventKind,
    Job,
    JobState,
    NodeState,
    OperationKind,
    OperationPhase,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.saves import SaveOutcome
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.operations.moving_parked import (
    back_to_park,
    becomes_move,
    check_can_save,
    describe_destination,
    park_of,
)
from scheduler_service.core.operations.parking import BY_USER
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

_TOOK = ("warm_us", "save_us")
"""Keys under which an operation notes how long its phases took, for the last line of the story."""


def migration_of(state: State, job_id: int) -> Operation | None:
    operation = operation_of(state, job_id) if state.operation_of else None
    return operation if operation is not None and operation.kind is OperationKind.MIGRATE else None


# ---- to begin one ------------------------------------------------------------------------------------------------------


def migrate(
    state: State,
    now: Micros,
    job: Job,
    spots: tuple[Spot, ...],
    guaranteed: bool,
    why: str,
    share: Share | None = None,
) -> None:
    """Makes the next launch of a running or parked job ready at these places. `share`: the launch shares them with others, from
    now on. Raises PlanRefused, with nothing changed."""
    park = park_of(state, job.id)
    _check_can_migrate(state, job, guaranteed, park)
    before = state.savepoint()
    try:
        number = warm(state, now, job, spots, guaranteed, share)
    except PlanRefused:
        state.undo(before)
        raise
    target = RunKey(job.id, number)
    deadline = now + state.settings.warm_limit_us
    names = ", ".join(dict.fromkeys(state.nodes.rows[spot.node].name for spot in spots))
    if park is None:
        begin(state, now, job, OperationKind.MIGRATE, OperationPhase.WARMING, deadline, target=target)
    else:
        same = [run.node for run in state.runs_of(job.id)] == [spot.node for spot in spots]
        back_to = park.phase if park.note_of(BY_USER) else OperationPhase.WAITING  # its policy resumes it
        becomes_move(state, now, park, back_to, target, deadline, same)
        names = describe_destination(state.operations.rows[park.id], names)
    ready = "which makes itself ready" if park is None else "made ready while the job is parked"
    text = f"to {names}, {ready}" + (f": {why}" if why else "")
    first = state.runs_of(job.id)[0]
    log_event(state, now, job.id, EventKind.MIGRATING, run=job.run, node=first.node, reason=Reason.MIGRATED, text=text)


def _check_can_migrate(state: State, job: Job, guaranteed: bool, park: Operation | None) -> None:
    runs = state.runs_of(job.id)
    require(bool(runs), f"job {job.id} does not run")
    free = park is not None or job.id not in state.operation_of
    require(free, f"another operation on job {job.id} is under way; wait until it is over")
    require(job.sampling is None, f"job {job.id} is being sampled")
    require(len(runs) == len(job.launch_spec.tasks()), f"a task of job {job.id} has ended")
    for run in runs:
        if park is not None:
            check_can_save(run)
        else:
            require(run.phase is RunPhase.RUNNING, f"run {run.key} is {run.phase.name}: only a running one can be migrated")
        require(guaranteed or not run.guaranteed, f"job {job.id} is guaranteed, and would lose that")
        node = state.nodes.rows[run.node]
        require(node.state is NodeState.UP, f"node {node.name} is silent: nobody there can be told to save")


def migrate_for_policy(state: State, action: Migrate, now: Micros) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None:
        raise PlanRefused(f"there is no job {action.job_id}")
    park = park_of(state, job.id)
    kept = park is not None and park.phase is OperationPhase.PARKED and park.note_of(BY_USER)
    require(not kept, f"the user of job {action.job_id} has it parked")
    migrate(state, now, job, action.spots, action.guaranteed, action.why, action.share)


def give_way(state: State, action: GiveWay, now: Micros) -> None:
    """Frees the devices that are kept for the job at its destination. Raises PlanRefused."""
    operation = migration_of(state, action.job_id)
    runs = [] if operation is None else targets(state, operation)
    require(bool(runs) and all(run.awaits for run in runs), f"nothing is made ready for job {action.job_id}")
    require(not any(run.guaranteed for run in runs), f"job {action.job_id} has a right to its destination")
    assert operation is not None  # whose runs these are
    give_up(state, now, operation, f"job {action.for_job} has a right to devices of the destination")


# ---- reports -----------------------------------------------------------------------------------------------------------


def run_warmed(state: State, now: Micros, run: Run, ready_at: str) -> None:
    """A run is ready to begin at its destination. With the last one the job is told to save."""
    operation = migration_of(state, run.job_id)
    if operation is None or operation.phase is not OperationPhase.WARMING:
        return
    state.put(state.runs, run.key, with_changes(run, ready_at=ready_at))
    if not all(target.ready_at for target in targets(state, operation)):
        return
    job = state.jobs.rows[run.job_id]
    _note(state, now, operation, "warm_us")
    stop_job(state, now, job, StopReason.MIGRATED, Reason.MIGRATED)


def begins_at_target(state: State, now: Micros, job: Job, last: Run) -> bool:
    """Begins the next launch at the destination, as the last task of a migrating job has saved its work and stopped. False,
    with nothing changed, if that is not possible."""
    operation = migration_of(state, job.id)
    if operation is None or operation.phase is not OperationPhase.SAVING or _hindrance(state, job, operation, last):
        return False
    runs = targets(state, operation)
    of_gang = bool(job.launch_spec.gang)
    following = with_changes(
        job,
        state=JobState.STARTING,
        reason=Reason.MIGRATED,
        detail="",
        cause_job=0,
        run=runs[0].run,
        requeued=True,
        verdict=Reason.NONE,
        left=False,
        eligible_us=None,
        start_by_us=now + state.settings.gang_start_us if of_gang else None,
        rendezvous=runs[0].ready_at if of_gang else "",
        task_nodes=tuple(run.node for run in runs) if of_gang else (),
    )
    state.put(state.jobs, job.id, starts_in_turn(state, now, following, runs[0].group))
    for run in runs:
        phase = RunPhase.READY if of_gang else RunPhase.STARTING
        begun = with_changes(run, phase=phase, awaits=False, placed_us=now, generation=run.generation + 1)
        state.put(state.runs, run.key, begun)
    _note(state, now, operation, "save_us")
    text = f"{_how_it_saved(job, last)}, and begins there"
    log_event(state, now, job.id, EventKind.PLACED, run=following.run, node=runs[0].node, reason=Reason.MIGRATED, text=text)
    return True


def _how_it_saved(job: Job, last: Run) -> str:
    """Text about the launch that has ended, of which this was the last task."""
    if (whole := job.last_save) is None or whole.run != last.run:
        # Some agents do not say it. A program that fails, or exits with 0, may have saved.
        return "it saved its work" if last.yielded else "whether it saved its work is not known; it stopped"
    save = whole.worst
    if save.outcome is SaveOutcome.SAVED:
        return f"it saved its work{'' if save.step < 0 else f' at step {save.step}'}"
    return f"it {save}" if save.outcome is SaveOutcome.NOT_SAVED else f"{save}; it stopped"


def _hindrance(state: State, job: Job, operation: Operation, last: Run) -> str:
    """Why the job cannot begin at its destination; empty: it can."""
    runs = targets(state, operation)
    if last.stop_reason is not StopReason.MIGRATED:
        return "it was stopped for another reason"
    if job.resize_to:
        return "it is to have another number of tasks"
    if len(runs) != len(job.launch_spec.tasks()) or not all(run.awaits and run.ready_at for run in runs):
        return "the destination is not ready any more"
    for run in runs:
        node = state.nodes.rows[run.node]
        if node.state is not NodeState.UP:
            return f"node {node.name} is silent"
        if state.holds_faulty(run):
            return f"a device of node {node.name} is faulty"
    return ""


def run_started(state: State, now: Micros, job_id: int) -> None:
    """Takes the start of a run of the job. With the last one the migration ends."""
    operation = migration_of(state, job_id)
    if operation is None or operation.phase is not OperationPhase.STARTING:
        return
    if state.begun.get(job_id, 0) < len(state.active[job_id]):
        return
    took = [int(operation.note_of(name)) for name in _TOOK]
    warm_s, save_s = (part / SECOND for part in took)
    start_s = (now - operation.phase_us) / SECOND
    was = "was parked" if operation.is_of_parked else "ran"
    text = f"ready in {warm_s:.2f} s while it {was}; then saved in {save_s:.2f} s, and started in {start_s:.2f} s"
    if operation.is_of_parked:
        names = ", ".join(dict.fromkeys(state.nodes.rows[run.node].name for run in state.runs_of(job_id)))
        text = f"moved to {describe_destination(operation, names)}: {text}"
    note_phase(state, now, operation, "")
    end(state, operation)
    first = state.runs_of(job_id)[0]
    log_event(state, now, job_id, EventKind.MIGRATED, run=first.run, node=first.node, reason=Reason.MIGRATED, text=text)


def _note(state: State, now: Micros, operation: Operation, name: str) -> None:
    """Notes how long the phase took, and advances to the next one."""
    note_phase(state, now, operation, "")
    noted = with_changes(operation, more=tuple(sorted({**dict(operation.more), name: now - operation.phase_us}.items())))
    following = OperationPhase.SAVING if name == "warm_us" else OperationPhase.STARTING
    advance(state, now, noted, following)


# ---- how one fails -----------------------------------------------------------------------------------------------------


def give_up(state: State, now: Micros, operation: Operation, why: str) -> None:
    """Gives a migration up. The job runs on or stays parked, or does what it would do without the migration."""
    job = state.jobs.rows[operation.job_id]
    if operation.is_of_parked and operation.phase is OperationPhase.WARMING and job.id in state.active:
        back_to_park(state, now, operation, why)
        not_migrated(state, now, job.id, why)
    else:
        cut_short(state, now, job.id, why)


def give_up_overdue(state: State, now: Micros, operation: Operation) -> None:
    names = ", ".join(sorted({state.nodes.rows[run.node].name for run in targets(state, operation) if not run.ready_at}))
    give_up(state, now, operation, f"{names} was not ready within {state.settings.warm_limit_us / SECOND:g} s")


def target_over(state: State, now: Micros, run: Run, why: str) -> None:
    """Gives a migration up because a run at its destination, ready or not, has been lost."""
    operation = migration_of(state, run.job_id)
    if operation is not None:
        give_up(state, now, operation, f"the destination is lost: {why}")


def node_lost(state: State, now: Micros, node_id: int, why: str) -> None:
    """Gives up migrations from or to a lost node, unless they have come to their destination."""
    for key in sorted(state.runs_on.get(node_id, ())):
        operation = migration_of(state, key.job_id)
        if operation is not None and operation.phase is not OperationPhase.STARTING:
            give_up(state, now, operation, why)


def concludes(state: State, now: Micros, job: Job, last: Run, saved: bool) -> None:
    """Takes the end of a launch's last task. `saved`: nothing but a stop has ended it. A migration that cannot continue is
    given up, before the job goes where it goes then."""
    operation = migration_of(state, job.id)
    if operation is None:
        return
    if operation.phase is OperationPhase.STARTING:
        cut_short(state, now, job.id, "the job did not start at its destination")
    elif operation.phase is OperationPhase.WARMING or not saved:
        give_up(state, now, operation, "the job ended before it could go on there")
    elif why := _hindrance(state, job, operation, last):
        give_up(state, now, operation, why)


def did_not_start(state: State, run: Run) -> bool:
    """Whether a run has ended that was to begin at the destination of its job, and did not."""
    operation = migration_of(state, run.job_id)
    return operation is not None and operation.phase is OperationPhase.STARTING and run.started_us is None
