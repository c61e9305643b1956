"""The only place where resources change hands. Policies propose; every action is checked again here."""

from scheduler_service.core.change import drop_earmark, stop_run, tell
from scheduler_service.core.errors import PlanRefused
from scheduler_service.core.job import (
    EventKind,
    JobClass,
    JobState,
    NodeState,
    Operation,
    OperationKind,
    OperationPhase,
    Reason,
    Run,
    RunPhase,
    StopReason,
)
from scheduler_service.core.messages import Action, DropEarmark, Earmark, Place, Plan, Preempt, Wait
from scheduler_service.core.rows import changed
from scheduler_service.core.state import State
from scheduler_service.core.values import ZERO, Micros, add, fits, least, sub

WAITING = frozenset(
    {Reason.NONE, Reason.BEHIND, Reason.NO_ROOM, Reason.TOO_LARGE, Reason.WAITING_FOR_VICTIMS, Reason.NOTHING_TO_PREEMPT}
)
"""Reasons that a Wait may replace; why a job came back to its queue stays until it starts."""


def enact(state: State, plan: Plan, now: Micros) -> str | None:
    """Carries out the whole plan, or nothing of it; returns why it was refused, or None."""
    before = state.savepoint()
    try:
        for action in plan:
            _act(state, action, now)
    except PlanRefused as refusal:
        state.undo(before)
        return str(refusal)
    return None


def _act(state: State, action: Action, now: Micros) -> None:
    match action:
        case Place():
            _place(state, action, now)
        case Preempt():
            _preempt(state, action, now)
        case Earmark():
            _earmark(state, action, now)
        case DropEarmark():
            _drop(state, action, now)
        case Wait():
            _wait(state, action)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise PlanRefused(otherwise)


def _place(state: State, action: Place, now: Micros) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None or job.state is not JobState.QUEUED:
        raise PlanRefused(f"job {action.job_id} is not queued")
    node = state.nodes.rows.get(action.node)
    if node is None or node.state is not NodeState.UP:
        raise PlanRefused(f"node {action.node} is not up")
    drop_earmark(state, now, job.id, f"the trial starts on {node.name}", starts_on=node.id)
    demand = job.spec.demand
    _require(fits(demand, state.room.free(node.id)), f"job {job.id} does not fit on {node.name}")
    _require(len(set(action.devices)) == len(action.devices) == demand.devices, f"job {job.id}: wrong number of devices")
    idle = state.idle_devices.get(node.id, 0)
    _require(all(index >= 0 and idle >> index & 1 for index in action.devices), f"{node.name}: a device is not idle")
    run = Run(job.id, job.run + 1, node.id, action.devices, demand, RunPhase.STARTING, now)
    for index in action.devices:
        state.put(state.devices, (node.id, index), changed(state.devices.rows[(node.id, index)], group=(run.key,)))
    placed = changed(job, state=JobState.STARTING, reason=Reason.NONE, detail="", cause_job=0, run=run.run)
    state.put(state.jobs, job.id, placed)
    state.put(state.runs, run.key, run)
    tell(state, now, job.id, EventKind.PLACED, run=run.run, node=node.id)


def _preempt(state: State, action: Preempt, now: Micros) -> None:
    run, trial = state.runs.rows.get(action.key), state.jobs.rows.get(action.trial)
    if run is None or run.phase not in (RunPhase.STARTING, RunPhase.RUNNING):
        raise PlanRefused(f"run {action.key} is not running")
    job = state.jobs.rows[run.job_id]
    node = state.nodes.rows[run.node]
    _require(job.spec.job_class is JobClass.BEST_EFFORT, f"job {job.id} is not best-effort")
    _require(job.preempted_for_trial < action.cap, f"job {job.id} was preempted {job.preempted_for_trial} times already")
    _require(node.state is NodeState.UP, f"{node.name} is silent: nobody there can be told to leave")
    if trial is None or trial.state is not JobState.QUEUED or trial.spec.job_class is not JobClass.TRIAL:
        raise PlanRefused(f"job {action.trial} is not a waiting trial")
    stop_run(state, now, run, StopReason.PREEMPTED, job.spec.grace_us, trial.id)
    counted = job.preempted_for_trial + 1
    told = changed(job, state=JobState.STOPPING, reason=Reason.PREEMPTED, cause_job=trial.id, preempted_for_trial=counted)
    state.put(state.jobs, job.id, told)
    facts = {"cause_job": trial.id, "decision": action.decision}
    tell(state, now, job.id, EventKind.PREEMPTED, run=run.run, node=run.node, reason=Reason.PREEMPTED, **facts)


def _earmark(state: State, action: Earmark, now: Micros) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None or job.state is not JobState.QUEUED:
        raise PlanRefused(f"job {action.job_id} is not queued")
    _require(job.id not in state.earmark_of, f"job {job.id} has an earmark already")
    node = state.nodes.rows.get(action.node)
    _require(node is not None and node.state is NodeState.UP, f"node {action.node} is not up")
    promised = ZERO
    for i, key in enumerate(action.victims):
        _require(key not in action.victims[:i], f"run {key} is named twice")
        _require(key not in state.promised_by, f"run {key} is promised to another job already")
        run = state.runs.rows.get(key)
        if run is None or run.phase is not RunPhase.STOPPING or run.node != action.node:
            raise PlanRefused(f"run {key} is not leaving node {action.node}")
        promised = add(promised, run.demand)
    kept = least(action.want, state.room.free(action.node))
    _require(fits(sub(action.want, kept), promised), f"what leaves node {action.node} is not enough for job {job.id}")
    cluster = state.cluster
    state.put(state.cluster_table, 0, changed(cluster, next_operation=cluster.next_operation + 1))
    operation = Operation(
        id=cluster.next_operation,
        kind=OperationKind.EARMARK,
        phase=OperationPhase.VACATING if action.victims else OperationPhase.READY,
        job_id=job.id,
        node=action.node,
        want=action.want,
        kept=kept,
        victims=action.victims,
        created_us=now,
        deadline_us=None if action.victims else now + state.settings.earmark_ttl_us,
    )
    state.put(state.operations, operation.id, operation)
    tell(state, now, job.id, EventKind.PREEMPTING, node=action.node, decision=action.decision)


def _drop(state: State, action: DropEarmark, now: Micros) -> None:
    operation = state.operations.rows.get(action.operation)
    if operation is None:
        raise PlanRefused(f"there is no operation {action.operation}")
    drop_earmark(state, now, operation.job_id, action.why)


def _wait(state: State, action: Wait) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None or job.state is not JobState.QUEUED:
        raise PlanRefused(f"job {action.job_id} is not queued")
    if job.reason not in WAITING:
        return
    if (job.reason, job.detail, job.cause_job) != (action.reason, action.detail, action.cause_job):
        state.put(state.jobs, job.id, changed(job, reason=action.reason, detail=action.detail, cause_job=action.cause_job))
