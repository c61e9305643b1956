"""Why a job does not run, from the stages that decide it: what blocks it, who is ahead, whose resources it would take, when.

A parked job waits for its user, or for the jobs that have its devices.

Nothing is changed here, but the choice of victims may draw from `rng`, so no decision may share that generator.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import takewhile

from scheduler_service.core.allocation.operations import operation_of
from scheduler_service.core.allocation.overdue_stops import describe as describe_stop
from scheduler_service.core.messages import AddEarmark, Preempt, Rng
from scheduler_service.core.model import Decision, Job, JobClass, JobState, Node, OperationKind, OperationPhase, Reason
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.values import SECOND, ZERO, Micros, Vector
from scheduler_service.core.operations.moving_parked import may_move
from scheduler_service.core.operations.parking import BY_USER
from scheduler_service.core.operations.resuming import what_holds_up
from scheduler_service.core.state.preemption_rights import Spared, claim_of, spared_reason
from scheduler_service.core.state.queue_keys import OWN_LANES, PAUSES, Lane, own_lane, startable
from scheduler_service.core.state.resources.packing import largest_first, pack
from scheduler_service.core.state.resources.suitable_nodes import describe, node_requirements
from scheduler_service.core.state.state import State
from scheduler_service.policies.explain.cells import explain_in_cells
from scheduler_service.policies.explain.explanation import (
    AHEAD_SHOWN,
    SPARED_SHOWN,
    Blocker,
    Estimate,
    Explanation,
    Victim,
    count_text,
    kept_waiting,
    waiting_for_victims,
)
from scheduler_service.policies.explain.forecast import estimate, may_fit
from scheduler_service.policies.explain.launch import joined_by
from scheduler_service.policies.placing.first_fit import no_room, offered_to, place
from scheduler_service.policies.placing.joining import why_no_part
from scheduler_service.policies.queueing.nothing_to_preempt import NOT_ENOUGH, why_spared
from scheduler_service.policies.queueing.precedence import may_delay
from scheduler_service.policies.queueing.trials_first import NONE_OPEN
from scheduler_service.policies.stages import Stages


def explain(state: State, job: Job, now: Micros, rng: Rng, stages: Stages) -> Explanation:
    """Explain why a live job does not run."""
    operation = operation_of(state, job.id)
    if operation is not None and (operation.kind is OperationKind.PARK or operation.is_of_parked):
        return explain_parked(state, job, operation)
    if job.state is JobState.SUSPENDED:
        return Explanation((Blocker(Reason.SUSPENDED, "it does not return by itself: resume it"),))
    if job.state is JobState.STOPPING:
        stopped = [run for run in state.runs_of(job.id) if run.stop_us is not None]
        return Explanation(tuple(Blocker(job.reason, describe_stop(state, run, now)) for run in stopped[:AHEAD_SHOWN]))
    if job.state is not JobState.QUEUED:
        aside = (Blocker(Reason.HELD, _set_aside(job)),) if job.set_aside else ()
        return Explanation(aside, joined=joined_by(state, job))
    blockers = list(_own_reasons(state, job))
    if blockers:
        return Explanation(tuple(blockers), estimate=_estimate_after_pause(job, blockers))
    if job.spec.vc:
        return explain_in_cells(state, job)
    before = [other for other in _jobs_before(state, job, stages) if may_delay(state, job, other)]
    if before:
        blockers.append(Blocker(Reason.BEHIND, f"{count_text(len(before), 'job')} before it", before[0].id))
    ahead = tuple(other.id for other in before[:AHEAD_SHOWN])
    if job.id in state.earmarks_of:
        return waiting_for_victims(state, job)  # those before it do not hold it up
    if not (has_room := place(state, job) is not None):
        several = bool(job.spec.alternatives)
        blockers += [_no_room(state, one, several) for one in job.in_each_configuration()]
    elif stages.starts is not None:
        blockers.append(kept_waiting(job))
    decision: Decision | None = None
    victims: tuple[Victim, ...] = ()
    guarded = ""
    if stages.victims is not None and claim_of(state, job) is not None and blockers and not before:
        plan = stages.victims.choose(state, job, rng)
        if plan is None:
            if state.free_resources.any_open():
                guarded = _guarded_text(state, now)
                each = why_spared(state, job, stages.victims.cap, SPARED_SHOWN)
                blockers.append(Blocker(Reason.NOTHING_TO_PREEMPT, "; ".join(filter(None, (NOT_ENOUGH, guarded, each)))))
        else:
            decision = next(action.decision for action in plan if isinstance(action, AddEarmark))
            told = {action.job_id for action in plan if isinstance(action, Preempt)}
            scores = {c.key: c.score for c in decision.candidates} if decision else {}
            keys = (run.key for job_id in sorted(told) for run in state.runs_of(job_id))
            victims = tuple(Victim(key, scores.get(key, 0.0)) for key in keys)
    if blockers and (place_in_queue := stages.about(state, job)):
        blockers[0] = blockers[0]._replace(detail="; ".join(filter(None, (blockers[0].detail, place_in_queue))))
    foreseen = blockers and not (has_room and stages.starts is not None)
    when = estimate(state, job, before, now, stages) if foreseen else None
    if guarded and when is not None and when.at_us is None and may_fit(state, job):
        when = Estimate(None, f"it waits until a run ends or may be preempted: {guarded}", when.unknown)
    return Explanation(tuple(blockers), len(before), ahead, decision, victims, when)


def _guarded_text(state: State, now: Micros) -> str:
    """Describe the runs that no trial may preempt yet; empty if no run is guarded."""
    runs = (run for job_id in state.active for run in state.runs_of(job_id) if state.free_resources.is_open(run.node))
    guarded = (run for run in runs if spared_reason(state, run, state.jobs.rows[run.job_id]) is Spared.GUARDED)
    if not (until := [run.guarded_us for run in guarded if run.guarded_us is not None]):
        return ""
    first = max(0, -(-(min(until) - now) // SECOND))
    return f"{count_text(len(until), 'run')} within the guaranteed run time (min_run), the first for {first} s more"


def _set_aside(job: Job) -> str:
    return f"{job.set_aside}. An operator finds the cause there; release the job to have it tried again"


def _own_reasons(state: State, job: Job) -> Iterator[Blocker]:
    """Reasons that keep the job out of its queue, or its queue from being served."""
    if not state.serves(job):
        has, starts = ("no virtual clusters", "without one") if job.spec.vc else ("virtual clusters", "of one")
        yield Blocker(Reason.NEVER_IN_QUOTA, f"the site has {has} now, and only jobs {starts} start: cancel it")
    if job.held:
        yield Blocker(Reason.HELD, _set_aside(job) if job.set_aside else "a user holds it: release it")
    for dependency in job.waits_for:
        other = state.jobs.rows[dependency.job_id]
        how = dependency.kind.name.lower().replace("_", "-")
        yield Blocker(Reason.DEPENDENCY, f"{how} job {other.id}, which is {other.state.name}", other.id)
    if job.eligible_us is not None:
        yield Blocker(Reason.RETRYING, job.detail or PAUSES)
    if job.elements is not None and not startable(job):
        yield Blocker(Reason.ARRAY_LIMIT, _as_many_as_may(state, job.id))


def _as_many_as_may(state: State, array_id: int) -> str:
    states = [state.jobs.rows[element].state for element in state.elements_of[array_id]]
    aside = states.count(JobState.SUSPENDED)
    told = f"{len(states)} of its elements have begun and not ended, as many as may at once"
    return f"{told}; {aside} of them suspended" if aside else told


def _estimate_after_pause(job: Job, blockers: list[Blocker]) -> Estimate | None:
    if job.eligible_us is not None and len(blockers) == 1:
        return Estimate(job.eligible_us, "the pause before its retry; then it queues")
    return None


def _jobs_before(state: State, job: Job, stages: Stages) -> Iterator[Job]:
    """Jobs that are served before it, in order; none if the job is in no queue."""
    mine = state.queue_key(job)
    if mine is None:
        return
    if not stages.trials_first:
        keys = takewhile(lambda key: key < mine, merge(*(state.waiting("", lane) for lane in OWN_LANES)))
        yield from (state.jobs.rows[key[-1]] for key in keys)
        return
    if job.spec.job_class is JobClass.BEST_EFFORT and not stages.passed_by(state):
        yield from (state.jobs.rows[key[-1]] for key in state.waiting("", Lane.TRIAL) if key[-1] not in state.earmarks_of)
    for key in state.waiting("", own_lane(job)):
        if key >= mine:
            return
        if key[-1] not in state.earmarks_of:
            yield state.jobs.rows[key[-1]]


def _no_room(state: State, job: Job, several: bool) -> Blocker:
    """Why a job has no room in one configuration: of its tasks, the largest first, the first that does not fit."""
    tasks = job.spec.tasks()
    offered = offered_to(state, job)
    need = tasks[largest_first(tasks)[0]]
    for rank in largest_first(tasks):
        need = tasks[rank]
        if pack((need,), offered) is None:
            break
    among = state.suitable_for(job.spec)
    ids = (node for node in state.node_ids.values() if among is None or among.bits >> node & 1)
    nodes = [state.nodes.rows[node] for node in ids]
    open_nodes = [node for node in nodes if state.free_resources.is_open(node.id)]
    closest = max(open_nodes, key=lambda node: (_share(Vector(*offered[:, node.id].tolist()), need), -node.id), default=None)
    wait, asks = no_room(state, job), node_requirements(job.spec)
    parts = (
        f"configuration {job.configuration}" if several else "",
        f"it needs a node that {describe(asks)}" if asks is not None and not wait.detail else "",
        wait.detail or (_none_open(nodes) if closest is None else ""),
        "" if wait.detail else why_no_part(state, job),
    )
    return Blocker(
        wait.reason,
        "; ".join(filter(None, parts)),
        need=need,
        node=closest.id if closest is not None else 0,
        free=Vector(*offered[:, closest.id].tolist()) if closest is not None else ZERO,
        nodes=len(nodes),
        usable=len(open_nodes),
        large_enough=sum(all(n <= c for n, c in zip(need, node.capacity, strict=True)) for node in nodes),
    )


def _none_open(nodes: Sequence[Node]) -> str:
    if not nodes:
        return "the cluster has no node yet"
    drained = sum(node.drained_us is not None for node in nodes)
    silent = len(nodes) - drained
    kinds = ((drained, "drained"), (silent, "silent"))
    return f"{NONE_OPEN}: " + ", ".join(f"{count_text(number, 'node')} {how}" for number, how in kinds if number)


def _share(free: Vector, need: Vector) -> float:
    """The part of the need that is free, of the scarcest resource."""
    return min((min(f / n, 1.0) for f, n in zip(free, need, strict=True) if n), default=1.0)


def explain_parked(state: State, job: Job, operation: Operation) -> Explanation:
    """Explain what a parked job waits for: its user, or the jobs that have its devices. While it is being parked, resumed or
    moved, nothing keeps it."""
    match operation.phase:
        case OperationPhase.PARKED if not operation.note_of(BY_USER):
            where = "its devices, or others," if may_move(state, operation) else "its devices"
            why = f"another job has its place; it goes on when {where} are idle and nobody who outranks it waits"
            holder = next((one.job_id for one in what_holds_up(state, state.runs_of(job.id))), 0)
            return Explanation((Blocker(Reason.PARKED, why, holder),))
        case OperationPhase.PARKED:
            return Explanation((Blocker(Reason.PARKED, "it is parked and does not go on by itself: resume it"),))
        case OperationPhase.WAITING:
            held = what_holds_up(state, state.runs_of(job.id))
            how = "there is no room elsewhere" if may_move(state, operation) else "it resumes on its own devices"
            blockers = (Blocker(Reason.PARKED, f"{how}: {one.why}", one.job_id) for one in held)
            return Explanation(tuple(blockers))
        case _:
            return Explanation()
