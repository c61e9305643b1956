"""A job takes the place of jobs that it outranks: these move to idle devices, or are parked until their own are idle again.

A trial outranks best-effort jobs of no higher priority, and of two best-effort jobs that of higher priority outranks the other.
A parked job resumes as soon as no job that outranks it waits and its devices are idle, or others if it can save while it is
parked. So no job is suspended for one that it outranks, and no parked job loses any work. Jobs that take turns stay in their
share group, and give their turns to the job (`gandiva/slicing/take_turns.py`).
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.allocation.operations import operation_of
from scheduler_service.core.enact import enact
from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Migrate, Park, Plan, Remember, Unpark
from scheduler_service.core.model import Job, JobClass, JobState, OperationKind, OperationPhase, RunPhase
from scheduler_service.core.model.values import SECOND, mask_of
from scheduler_service.core.operations.parking import BY_USER, leave_devices
from scheduler_service.core.operations.resuming import what_holds_up
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.gandiva.memos import forget, memo_of
from scheduler_service.policies.gandiva.migration import may_move, place_to_move
from scheduler_service.policies.gandiva.slicing.candidate_servers import servers_with_room
from scheduler_service.policies.gandiva.slicing.mates import outranked_devices, outranked_slots, outranks
from scheduler_service.policies.gandiva.slicing.probes import NAME
from scheduler_service.policies.gandiva.slicing.settings import Settings
from scheduler_service.policies.gandiva.slicing.take_turns import would_do
from scheduler_service.policies.placing.resume_placement import Find, resume_elsewhere
from scheduler_service.policies.stages import Where

LOOKED_AT = 64
"""Jobs that are looked at as those whose place a job may take."""
SERVERS = 16
"""Servers on which they are looked at, if there are more such jobs."""
PAUSE_US = 600 * SECOND
"""How long a job is left alone that could not be parked or moved."""
TAKES_ITS_PLACE = "outranks it, and takes its place"
"""A part of the reason that stories give."""


def displaced_subject(job_id: int) -> str:
    """The subject of the memo that says that a launch of the job gives its place to another one, and to which."""
    return f"displaced/{job_id}"


# ---- to take a place ---------------------------------------------------------------------------------------------------


Room = Callable[[State, Job], Plan | None]
"""The plan by which a job would start next to all that run; None: there is no room for it."""


def displace(state: State, job: Job, where: Where, settings: Settings, room: Room) -> Plan | None:
    """Displace the fewest jobs that make room, of those that this one outranks and that run alone. Empty: such jobs are about
    to leave. None: none would make room."""
    if job.spec.shares or not any(one.spec.demand.devices for one in job.in_each_configuration()):
        return None
    if any(_leaves_for(state, job_id, job) for job_id in state.operation_of):
        return ()
    for others in _outranked_jobs(state, job, where):
        able = [other for other in others if _may_be_parked(state, other, where)]
        chosen = _enough(state, job, able, room) if able else []
        for moves in (True, False) if chosen else ():
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


def _outranked_jobs(state: State, job: Job, where: Where) -> Iterator[list[Job]]:
    """The first jobs to leave: those of the lowest priority, and of equals those that were submitted last. If there are many
    jobs that could, then those of one server after the other; for a gang, those of all servers that have room for a task.
    Costs little if there are none, however many jobs run."""
    c = state.candidates
    used = slice(0, c.used)
    slots = np.nonzero(outranked_slots(state, job) & (c.unit[used] > 0) & (c.task[used] == 0))[0]
    order = slots[np.lexsort((-c.job[slots], c.priority[slots]))]
    if len(order):
        yield _jobs_in(state, job, order[:LOOKED_AT])
    if len(order) > LOOKED_AT:
        nodes = servers_with_room(state, job, where, outranked_devices(state, job))
        on = c.node[order]
        for few in [nodes] if job.spec.gang else ([node] for node in nodes[:SERVERS]):
            yield _jobs_in(state, job, order[np.isin(on, few)][: SERVERS * LOOKED_AT])


def _jobs_in(state: State, job: Job, slots: NDArray[np.intp]) -> list[Job]:
    jobs = (state.jobs.rows[int(job_id)] for job_id in state.candidates.job[slots])
    return [other for other in jobs if outranks(job, other)]


def _may_be_parked(state: State, job: Job, where: Where) -> bool:
    """Whether the job runs in the part of the site that is meant, and nothing else is under way with it. One that could not be
    parked or moved is left alone for some time."""
    if job.state is not JobState.RUNNING or job.spec.vc != where.vc or job.id in state.operation_of:
        return False
    memo = memo_of(state, displaced_subject(job.id))
    if job.spec.shares or job.resize_to or job.sampling is not None or (memo is not None and memo.value[1] == job.run):
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


def _enough(state: State, job: Job, able: list[Job], room: Room) -> list[Job]:
    """The first of these that make room together once they are parked, without any that is not needed; or none."""
    if not _has_room(state, job, able, room):
        return []
    chosen: list[Job] = []
    for other in able:
        chosen.append(other)
        if _has_room(state, job, chosen, room):
            break
    for other in list(chosen):
        fewer = [one for one in chosen if one is not other]
        if fewer and _has_room(state, job, fewer, room):
            chosen = fewer
    return chosen


def _has_room(state: State, job: Job, parked: list[Job], room: Room) -> bool:
    """Whether there would be room for the job if these were parked."""
    now = state.cluster.clock_us
    with state.supposing():
        for other in parked:
            if enact(state, (Park(other.id, ""),), now) is not None:
                return False
            for run in state.runs_of(other.id):
                leave_devices(state, now, run)
        return room(state, job) is not None


def _leave(state: State, job: Job, other: Job, settings: Settings, moves: bool) -> Plan:
    """How the other one leaves. A trial does not wait until others have moved."""
    why = f"job {job.id} {TAKES_ITS_PLACE}"
    due = state.cluster.clock_us + PAUSE_US
    note = Remember(NAME, displaced_subject(other.id), (job.id, other.run), other.id, due)
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


# ---- to wait for a place -----------------------------------------------------------------------------------------------


def comes_free_soon(state: State, job: Job, where: Where) -> bool:
    """Whether a job would have room if jobs that it outranks could be parked that cannot just now: the tasks of gangs begin, or
    an operation is under way with them. That takes no longer than such operations may."""
    c = state.candidates
    tasks, lower = job.spec.tasks(), outranked_slots(state, job)
    if job.spec.shares or not tasks[0].devices or not (lower.any() or state.operation_of):
        return False
    nodes = {run.node for job_id in state.operation_of for run in state.runs_of(job_id)}
    nodes |= {int(node) for node in c.node[: c.used][lower & (c.tasks[: c.used] > 1)]}
    if job.spec.gang:
        nodes |= set(servers_with_room(state, job, where, outranked_devices(state, job)))
    room, settles = 0, False
    for node in sorted(nodes):
        devices, some = _could_have(state, job, where, node)
        if devices >= tasks[0].devices and state.free_resources.is_open(node) and state.is_usable(job.spec, node):
            room, settles = room + devices // tasks[0].devices, settles or some
    return settles and room >= len(tasks)


def _could_have(state: State, job: Job, where: Where, node: int) -> tuple[int, bool]:
    """How many devices of the node are idle, or held only by jobs that this one outranks and that can be parked, now or soon;
    and whether some of these cannot be yet."""
    closed = state.faulty_devices.get(node, 0) | state.kept_devices.get(node, 0)
    settling = 0
    for key in sorted(state.runs_on.get(node, ())):
        run = state.runs.rows[key]
        other, mask = state.jobs.rows[run.job_id], mask_of(run.devices)
        memo, group = memo_of(state, displaced_subject(other.id)), state.share_groups.rows.get(run.group)
        mine = run.vc == where.vc and run.guaranteed == where.guaranteed and not other.spec.shares and other.sampling is None
        stays = memo is not None and memo.value[1] == other.run and other.id not in state.operation_of
        if not mine or stays or not outranks(job, other) or run.key in state.promised_by:
            closed |= mask
        elif other.id in state.operation_of or other.resize_to or run.phase is not RunPhase.RUNNING:
            settling |= mask if group is None else mask_of(group.devices_on(node))
    devices = ~closed & ((1 << state.nodes.rows[node].capacity.devices) - 1)
    return devices.bit_count(), bool(devices & settling)


# ---- to have it back ---------------------------------------------------------------------------------------------------


def put_back(state: State, vc: str, find: Find) -> Proposals:
    """Resume jobs that were parked for others, if no job that outranks them waits: on their own devices if these are idle, or
    else where there is room."""
    for job in sorted(_displaced_jobs(state, vc), key=lambda job: (-job.priority, job.id)):
        first = next((first for first in _first_waiting(state, vc) if outranks(first, job)), None)
        if first is not None:
            continue
        if next(what_holds_up(state, state.runs_of(job.id)), None) is None:
            yield Unpark(job.id, "its devices are idle again"), forget(displaced_subject(job.id))
        elif (move := resume_elsewhere(state, job, find)) is not None:
            yield move, forget(displaced_subject(job.id))


def _displaced_jobs(state: State, vc: str) -> Iterator[Job]:
    """The jobs of the virtual cluster (empty: of the site) that are parked for others."""
    for job_id in state.operation_of:
        operation = operation_of(state, job_id)
        if operation is None or operation.phase is not OperationPhase.PARKED or operation.note_of(BY_USER):
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
    """Keeps the memo of a job as long as it is parked for another. After a pause it may be displaced again."""
    memo = memo_of(state, displaced_subject(job.id))
    if memo is None or not memo.due:
        return
    operation = operation_of(state, job.id)
    if operation is not None and operation.kind is OperationKind.PARK:
        yield Remember(NAME, memo.subject, memo.value, job.id, state.cluster.clock_us + PAUSE_US)
    else:
        yield forget(memo.subject)
