"""The only place where resources change hands. Policies propose; every action is checked again here."""

from collections.abc import Callable
from typing import Any

from scheduler_service.core.allocation.bindings import bind, is_entitled, suffices
from scheduler_service.core.allocation.earmarks import drop_earmarks, start_earmark_clock, with_share
from scheduler_service.core.allocation.guarantee import clear_of_migrations, demote, promote, reclaim, stopped_together
from scheduler_service.core.allocation.placing import place
from scheduler_service.core.allocation.share_groups import probe, retime, share, unshare
from scheduler_service.core.allocation.transitions import stop_job
from scheduler_service.core.errors import PlanRefused, require
from scheduler_service.core.exchange.ownership import agree
from scheduler_service.core.handlers.exchange import note_idle, offer_idle, withdraw
from scheduler_service.core.handlers.resize import resize
from scheduler_service.core.messages import (
    Action,
    AddEarmark,
    Agree,
    BeginProbe,
    Bind,
    Delegate,
    Demote,
    DropEarmark,
    EndProbe,
    GiveWay,
    Migrate,
    NoteIdle,
    OfferIdle,
    Park,
    Place,
    Plan,
    Preempt,
    Promote,
    Reclaim,
    Remember,
    Resize,
    Retime,
    Share,
    SkipSamples,
    Unpark,
    Unshare,
    Wait,
    Withdraw,
    beneficiaries,
)
from scheduler_service.core.model import (
    Earmark,
    EarmarkPhase,
    EventKind,
    Job,
    JobState,
    NodeState,
    Reason,
    StopReason,
)
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.configurations import chosen_configuration
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import Micros, fits, mask_of, minimum, sub
from scheduler_service.core.operations.migrating import give_way, migrate_for_policy
from scheduler_service.core.operations.parking import park_for_policy, unpark_for_policy
from scheduler_service.core.operations.samples import skip_samples
from scheduler_service.core.state.holdings import devices_released, jobs_together, resources_released
from scheduler_service.core.state.preemption_rights import RULES, claim_of, spared_reason, why_not
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event

WAITING = frozenset(
    {
        Reason.NONE,
        Reason.BEHIND,
        Reason.NO_ROOM,
        Reason.TOO_LARGE,
        Reason.NODES_CLOSED,
        Reason.WAITING_FOR_VICTIMS,
        Reason.NOTHING_TO_PREEMPT,
        Reason.ARRAY_LIMIT,
        Reason.BEYOND_QUOTA,
        Reason.CELLS_FAULTY,
        Reason.NEVER_IN_QUOTA,
    }
)
"""Reasons that a Wait may replace. Any other, such as that of a requeue, stays until the job starts or cannot (`_BESIDE`)."""
_ALLOWED = (Remember, Wait, Promote, Demote, EndProbe)
"""Actions that are allowed even for a job that is set aside."""
_BESIDE = (Reason.NEVER_IN_QUOTA, Reason.TOO_LARGE, Reason.NODES_CLOSED)
_QUEUED, _IN_VAIN = JobState.QUEUED, Reason.NOTHING_TO_PREEMPT


def enact(state: State, plan: Plan, now: Micros) -> str | None:
    """Carries out the plan whole or not at all. Returns why it was refused, or None."""
    before = state.savepoint()
    try:
        if state.set_aside:
            _check_not_aside(state, plan)
        for action in plan:
            _HANDLERS[type(action)](state, action, now)
    except PlanRefused as refusal:
        state.undo(before)
        return str(refusal)
    return None


def _check_not_aside(state: State, plan: Plan) -> None:
    """Refuses plans that benefit a job that is set aside. Notes about it, and changes of guarantees, are allowed as usual."""
    aside = state.set_aside.intersection(beneficiaries(tuple(action for action in plan if not isinstance(action, _ALLOWED))))
    require(not aside, f"job {min(aside, default=0)} is set aside until somebody releases it")


def _preempt(state: State, action: Preempt, now: Micros) -> None:
    claimant = state.jobs.rows.get(action.for_job)
    if stopped_together(state, action.job_id, action.for_job, now):
        return
    everybody = jobs_together(state, action.job_id)  # also jobs that share devices only with a migration that gives way
    clear_of_migrations(state, action.job_id, now, f"job {action.for_job} needs devices of the destination")
    claim = None if claimant is None or claimant.state is not JobState.QUEUED else claim_of(state, claimant)
    for job_id in everybody:
        _preempt_job(state, job_id, claimant, claim, action, now)


def _preempt_job(state: State, job_id: int, claimant: Job | None, claim: Claim | None, action: Preempt, now: Micros) -> None:
    job, runs = state.jobs.rows.get(job_id), state.runs_of(job_id)
    if job is None or not runs or any(run.phase.exits_soon for run in runs):
        raise PlanRefused(f"job {job_id} does not run")
    if claimant is None or claim is None or not RULES[claim].bounded:
        raise PlanRefused(f"job {action.for_job} is not a waiting trial")
    if (refusal := why_not(state, claim, claimant, job, runs)) is not None:
        raise PlanRefused(refusal)
    counted = job.preempted_for_trial
    if RULES[claim].capped:
        require(counted < action.cap, f"job {job.id} was preempted {counted} times already")
        counted += 1
    for run in runs:
        if (why := spared_reason(state, run, job)) is not None:
            raise PlanRefused(f"job {job.id} {why.value}")
        node = state.nodes.rows[run.node]
        require(node.state is NodeState.UP, f"{node.name} is silent: nobody there can be told to leave")
    stop_job(state, now, job, StopReason.PREEMPTED, Reason.PREEMPTED, claimant.id, preempted_for_trial=counted)
    facts: dict[str, Any] = {"cause_job": claimant.id, "decision": action.decision}
    first = runs[0]
    log_event(state, now, job.id, EventKind.PREEMPTED, run=first.run, node=first.node, reason=Reason.PREEMPTED, **facts)


def _earmark(state: State, action: AddEarmark, now: Micros) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None or job.state is not JobState.QUEUED:
        raise PlanRefused(f"job {action.job_id} is not queued")
    others = [state.earmarks.rows[i] for i in state.earmarks_of.get(job.id, ())]
    require(all(other.node != action.node for other in others), f"job {job.id} has an earmark there already")
    require(all(other.created_us == now for other in others), f"job {job.id} has earmarks already")
    require(action.configuration <= len(job.spec.alternatives), f"job {job.id} has no configuration {action.configuration}")
    require(
        all(other.configuration == action.configuration for other in others),
        f"job {job.id} has earmarks in another configuration",
    )
    job = job.in_configuration(action.configuration)
    require(state.free_resources.is_open(action.node), f"node {action.node} is not open")
    require(state.is_usable(job.spec, action.node), f"node {action.node} is none of those that job {job.id} asks for")
    leaving = []
    for i, key in enumerate(action.victims):
        require(key not in action.victims[:i], f"run {key} is named twice")
        require(bool(action.devices) or key not in state.promised_by, f"run {key} is promised to another job already")
        run = state.runs.rows.get(key)
        if run is None or not run.phase.exits_soon or run.node != action.node:
            raise PlanRefused(f"run {key} is not leaving node {action.node}")
        require(bool(action.devices) or not state.holds_faulty(run), f"run {key} leaves a faulty device behind")
        leaving.append(run)
    kept = minimum(action.want, state.free_resources.free(action.node))
    if action.devices:
        kept = with_share(action.want, *_idle_of(state, job, action))  # each named device is idle, or a victim's
    else:
        promised = resources_released(state, leaving)
        require(fits(sub(action.want, kept), promised), f"what leaves node {action.node} is not enough for job {job.id}")
    cluster = state.cluster
    state.put(state.cluster_table, 0, with_changes(cluster, next_earmark=cluster.next_earmark + 1))
    earmark = Earmark(
        id=cluster.next_earmark,
        phase=EarmarkPhase.VACATING if action.victims else EarmarkPhase.READY,
        job_id=job.id,
        node=action.node,
        want=action.want,
        kept=kept,
        victims=action.victims,
        created_us=now,
        tasks=action.tasks,
        devices=action.devices,
        configuration=action.configuration,
    )
    state.put(state.earmarks, earmark.id, earmark)
    start_earmark_clock(state, now, job.id)
    if not others:
        text = chosen_configuration(action.configuration, action.why) if action.why else ""
        log_event(state, now, job.id, EventKind.PREEMPTING, node=action.node, decision=action.decision, text=text)


def _idle_of(state: State, job: Job, action: AddEarmark) -> tuple[int, int]:
    """How many of the devices that the action names are idle, and how many it names. The others are held by its victims."""
    mask, node = 0, action.node
    for rank, devices in zip(action.tasks, action.devices, strict=True):
        more = mask_of(devices)
        enough = suffices(state, node, job.spec.tasks()[rank], devices)
        require(bool(more) and enough, f"job {job.id}: wrong number of devices for task {rank}")
        require(not more & mask, f"job {job.id}: a device is named twice")
        mask |= more
    require(not mask & state.kept_devices.get(node, 0), f"node {node}: a device is kept for another job")
    require(not mask & state.faulty_devices.get(node, 0), f"node {node}: a device is faulty")
    opportunistic = job.spec.guarantee is Guarantee.OPPORTUNISTIC
    require(opportunistic or is_entitled(state, job, node, mask), f"node {node}: job {job.id} has no right to a device")
    idle = mask & state.idle_devices.get(node, 0)
    leaving = devices_released(state, [state.runs.rows[key] for key in action.victims]).get(node, 0)
    require(not mask & ~(idle | leaving), f"node {node}: a device is neither idle nor a victim's")
    return idle.bit_count(), mask.bit_count()


def _drop(state: State, action: DropEarmark, now: Micros) -> None:
    earmark = state.earmarks.rows.get(action.earmark)
    if earmark is None:
        raise PlanRefused(f"there is no earmark {action.earmark}")
    drop_earmarks(state, now, earmark.job_id, action.why)


def _wait(state: State, action: Wait, now: Micros) -> None:
    job = state.jobs.rows.get(action.job_id)
    if job is None or job.state is not _QUEUED:
        raise PlanRefused(f"job {action.job_id} is not queued")
    reason, detail, cause = action.reason, action.detail, action.cause_job
    if job.reason is reason and job.detail == detail and job.cause_job == cause:
        return
    if job.reason in WAITING or reason in _BESIDE:
        state.put(state.jobs, job.id, with_changes(job, reason=reason, detail=detail, cause_job=cause))
        if reason is _IN_VAIN and job.reason is not reason and not _is_told(state, job.id):
            log_event(state, now, job.id, EventKind.NOTHING_TO_PREEMPT, reason=reason, text=detail)


def _is_told(state: State, job_id: int) -> bool:
    """Whether the story already says so in this step: queues are served more than once."""
    return any(line.job_id == job_id and line.kind is EventKind.NOTHING_TO_PREEMPT for line in state.log)


def _remember(state: State, action: Remember, _now: Micros) -> None:
    require(not action.job_id or action.job_id in state.jobs.rows, f"job {action.job_id} is not live")
    at = action.policy, action.subject
    memo = None if action.value is None else Memo(*at, action.value, action.job_id, action.due_us)
    if memo != state.memos.rows.get(at):
        state.put(state.memos, at, memo)


def _delegate(state: State, action: Delegate, _now: Micros) -> None:
    state.delegated[action.policy, action.subject] = action


def _agree(state: State, action: Agree, now: Micros) -> None:
    agree(state, action.deal, now)


_HANDLERS: dict[type[Action], Callable[[State, Any, Micros], None]] = {
    Place: place,
    SkipSamples: skip_samples,
    Preempt: _preempt,
    AddEarmark: _earmark,
    DropEarmark: _drop,
    Wait: _wait,
    Remember: _remember,
    Delegate: _delegate,
    Share: share,
    Unshare: unshare,
    Park: park_for_policy,
    Unpark: unpark_for_policy,
    Migrate: migrate_for_policy,
    GiveWay: give_way,
    Retime: retime,
    BeginProbe: probe,
    EndProbe: probe,
    Resize: resize,
    Bind: lambda state, action, _now: bind(state, action),
    Reclaim: reclaim,
    Promote: lambda state, action, now: promote(state, action.job_id, now),
    Demote: lambda state, action, now: demote(state, action.job_id, now, action.cause_job),
    Agree: _agree,
    NoteIdle: note_idle,
    OfferIdle: offer_idle,
    Withdraw: withdraw,
}
