"""A job takes the place of jobs that it outranks: these move to idle devices, or are parked until their own are idle again.

A trial outranks best-effort jobs of no higher priority, and of two best-effort jobs that of higher priority outranks the other.
What was parked goes on as soon as nobody who outranks it waits and its devices are idle, or others if it can save while it is
parked. So no job is suspended for one that it outranks, and nobody who is parked loses any work. Jobs that take turns stay in
their share group, and give their turns to the job (`overload/slicing.py`).
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from scheduler_service.core.allocation.operations import operation_of
from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Migrate, Park, Plan, Remember, Unpark
from scheduler_service.core.model import Job, JobClass, JobState, OperationKind, OperationPhase, RunPhase
from scheduler_service.core.model.values import SECOND
from scheduler_service.core.operations.parking import BY_USER, leave_devices
from scheduler_service.core.operations.resuming import what_holds_up
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.introspection.memos import forget, memo_of
from scheduler_service.policies.introspection.moving import may_move, place_to_move
from scheduler_service.policies.overload.settings import Settings
from scheduler_service.policies.overload.slicing import NAME, outranks, would_do
from scheduler_service.policies.placing.elsewhere import Find, elsewhere
from scheduler_service.policies.stages import Where

LOOKED_AT = 64
"""Jobs that are looked at as those whose place a job may take."""
PAUSE_US = 600 * SECOND
"""How long a job is left alone that could not be parked or moved."""
TAKES_ITS_PLACE = "outranks it, and takes its place"
"""Of the reason that stories tell."""


def displaced_subject(job_id: int) -> str:
    """Of the memo that says that the job gives its place to another one, and to which."""
    return f"displaced/{job_id}"


# ---- to take a place ---------------------------------------------------------------------------------------------------


def displace(state: State, job: Job, where: Where, settings: Settings) -> Plan | None:
    """Has jobs leave that this one outranks, the fewest that make room. Empty: such jobs are about to leave. None: none would
    make room."""
    if job.spec.shares or where.plan is None or not any(one.spec.demand.devices for one in job.in_each_configuration()):
        return None
    if any(_leaves_for(state, job_id, job) for job_id in state.operation_of):
        return ()
    able = [other for other in _outranked(state, job) if _may_be_parked(state, other, where)]
    chosen = _enough(state, job, able, where) if able else []
    if not chosen:
        return None
    for moves in (True, False):
        plan = tuple(action for other in chosen for action in _leave(state, job, other, settings, moves))
        if would_do(state, plan):
            return plan
    return None


def _leaves_for(state: State, job_id: int, job: Job) -> bool:
    memo, operation = memo_of(state, displaced_subject(job_id)), operation_of(state, job_id)
    if memo is None or operation is None or memo.value[0] != job.id:
        return False
    moves = operation.kind is OperationKind.MIGRATE and not operation.is_of_parked
    return moves or operation.phase is OperationPhase.PARKING


def _outranked(state: State, job: Job) -> list[Job]:
    """The first jobs to leave: those of the lowest priority, and of equals those that were submitted last. Costs little if
    there are none, however many jobs run."""
    c = state.candidates
    used = slice(0, c.used)
    below = c.priority[used] <= job.priority if job.spec.job_class is JobClass.TRIAL else c.priority[used] < job.priority
    slots = np.nonzero((c.job[used] > 0) & (c.unit[used] > 0) & (c.task[used] == 0) & below)[0]
    order = slots[np.lexsort((-c.job[slots], c.priority[slots]))]
    jobs = (state.jobs.rows[int(job_id)] for job_id in c.job[order])
    return list(islice((other for other in jobs if outranks(job, other)), LOOKED_AT))


def _may_be_parked(state: State, job: Job, where: Where) -> bool:
    """Whether the job runs in the part of the site that is meant, and nothing else is under way with it."""
    if job.state is not JobState.RUNNING or job.spec.vc != where.vc or job.id in state.operation_of:
        return False
    if job.spec.shares or job.resize_to or job.sampling is not None or memo_of(state, displaced_subject(job.id)) is not None:
        return False
    return all(
        run.phase is RunPhase.RUNNING
        and run.demand.devices
        and not run.group
        and run.guaranteed == where.guaranteed
        and run.guarded_us is None
        and run.key not in state.promised_by
        and not state.holds_faulty(run)
        for run in state.runs_of(job.id)
    )


def _enough(state: State, job: Job, able: list[Job], where: Where) -> list[Job]:
    """The first of these that make room together once they are parked, without any that is not needed; or none."""
    if not _has_room(state, job, able, where):
        return []
    chosen: list[Job] = []
    for other in able:
        chosen.append(other)
        if _has_room(state, job, chosen, where):
            break
    for other in list(chosen):
        fewer = [one for one in chosen if one is not other]
        if fewer and _has_room(state, job, fewer, where):
            chosen = fewer
    return chosen


def _has_room(state: State, job: Job, parked: list[Job], where: Where) -> bool:
    """Whether there would be room for the job if these were parked."""
    assert where.plan is not None
    now = state.cluster.clock_us
    with state.supposing():
        for other in parked:
            if enact(state, (Park(other.id, ""),), now) is not None:
                return False
            for run in state.runs_of(other.id):
                leave_devices(state, now, run)
        return where.plan(state, job) is not None


def _leave(state: State, job: Job, other: Job, settings: Settings, moves: bool) -> Plan:
    """How the other one leaves. A trial does not wait until others have moved."""
    why = f"job {job.id} {TAKES_ITS_PLACE}"
    due = state.cluster.clock_us + PAUSE_US
    note = Remember(NAME, displaced_subject(other.id), (job.id,), other.id, due)
    if (
        moves
        and settings.migration
        and job.spec.job_class is not JobClass.TRIAL
        and may_move(state, other.spec.vc, other, settings)
    ):
        spots = place_to_move(state, other)
        if spots is not None:
            return (Migrate(other.id, spots, why, any(run.guaranteed for run in state.runs_of(other.id))), note)
    return (Park(other.id, why), note)


# ---- to have it back ---------------------------------------------------------------------------------------------------


def put_back(state: State, vc: str, find: Find) -> Proposals:
    """Jobs that were parked for others go on if nobody who outranks them waits: on their own devices if these are idle, or else
    where there is room."""
    for job in sorted(_displaced(state, vc), key=lambda job: (-job.priority, job.id)):
        first = next((first for first in _first_waiting(state, vc) if outranks(first, job)), None)
        if first is not None:
            continue
        if next(what_holds_up(state, state.runs_of(job.id)), None) is None:
            yield Unpark(job.id, "its devices are idle again"), forget(displaced_subject(job.id))
        elif (move := elsewhere(state, job, find)) is not None:
            yield move, forget(displaced_subject(job.id))


def _displaced(state: State, vc: str) -> Iterator[Job]:
    """The jobs of the virtual cluster (empty: of the site) that are parked for others."""
    for job_id in state.operation_of:
        operation = operation_of(state, job_id)
        if operation is None or operation.phase is not OperationPhase.PARKED or operation.noted(BY_USER):
            continue
        if memo_of(state, displaced_subject(job_id)) is not None and state.jobs.rows[job_id].spec.vc == vc:
            yield state.jobs.rows[job_id]


def _first_waiting(state: State, vc: str) -> Iterator[Job]:
    """The first job of each queue. One that has an earmark does not wait for what is idle."""
    for lane in OWN_LANES:
        for key in state.waiting(vc, lane):
            if key[-1] not in state.earmarks_of:
                yield state.jobs.rows[key[-1]]
                break


def leave_alone(state: State, job: Job) -> Iterator[Remember]:
    """Keeps the memo of a job as long as it is parked for another. After a pause it may be displaced anew."""
    memo = memo_of(state, displaced_subject(job.id))
    if memo is None or not memo.due:
        return
    operation = operation_of(state, job.id)
    if operation is not None and operation.kind is OperationKind.PARK:
        yield Remember(NAME, memo.subject, memo.value, job.id, state.cluster.clock_us + PAUSE_US)
    else:
        yield forget(memo.subject)
