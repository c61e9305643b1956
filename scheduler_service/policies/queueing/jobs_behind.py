"""Starts jobs behind others that wait: each queued job that delays none of those before it.

The jobs are looked at by kind, in the order of the queue: the first of those that ask for the same represents all. If it has no
room besides what is kept, the others have none either, as there is ever less. So a step costs a look at each kind, and very
little where jobs ask for devices and none is free besides what is kept.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import islice

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Plan, Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.model.jobs import Needs
from scheduler_service.core.state.queue_keys import Lane, own_lane
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import leaves_queue, no_room
from scheduler_service.policies.queueing.precedence import Precedence

LOOKED_AT = 100
"""The most jobs that do not start that are looked at in one step."""
_MOST_KINDS = 256
"""If jobs ask for more different things than these, those alone are looked at that the first jobs of the queue ask for."""

MakeRoom = Callable[[State, Job, Precedence], Generator[Plan, str | None, Wait | None]]
"""Does something else for a job that has no room besides what is kept, such as preempting others. Returns why it waits; None:
it has started, or something is kept for it."""
_Turn = tuple[QueueKey, Lane, Needs, int]
"""The next job of a kind, and behind how many others of its kind it is."""


def no_victims(_state: State, job: Job, _before: Precedence) -> Generator[Plan, str | None, Wait | None]:
    """No run is preempted for a job."""
    return Wait(job.id, Reason.NO_ROOM)
    yield


def serve_behind(state: State, lanes: Sequence[Lane], before: Precedence, make_room: MakeRoom = no_victims) -> Proposals:
    """Starts those jobs of the lanes that delay neither the jobs that `before` is about nor those before themselves."""
    is_idle = state.free_resources.any_device_beside(before.kept)
    if not is_idle and make_room is no_victims and not any(state.without_devices[lane] for lane in lanes):
        return
    turns = list(_turns(state, lanes))
    heapify(turns)
    looks = LOOKED_AT
    while turns and looks:
        key, lane, kind, passed = heappop(turns)
        job = state.jobs.rows[key[-1]]
        may_fit = is_idle or not _needs_devices(kind)
        place = before.place(state, job) if may_fit else None
        if place is not None:
            if (yield (place,)) is None:
                before.note_placed(state, job, place)
            else:
                passed += 1
        elif job.id in state.earmarks_of:
            passed += 1
        else:
            looks -= 1
            wait = no_room(state, job)
            if leaves_queue(wait):
                passed += (yield (wait,)) is not None
            else:
                reason = yield from make_room(state, job, before)
                if reason is not None:
                    hopeless = not may_fit or before.is_hopeless()
                    yield from _wait(state, job, before, reason)
                    if hopeless:
                        continue
                passed += reason is not None or job.id in state.earmarks_of  # else it has started
        queue = state.kinds_waiting(lane).get(kind)
        if queue is not None and (following := queue.key_behind(passed)) is not None:
            heappush(turns, (following, lane, kind, passed))


def may_start_behind(state: State, lanes: Sequence[Lane], job: Job) -> bool:
    """Whether any job of the lanes might start behind this one, which waits. It costs little to find that out in a cluster in
    which jobs ask for devices and all are in use, and hardly ever is wrong there."""
    spec = job.spec
    if spec.gang or spec.alternatives:
        return True
    for lane in lanes:
        if state.without_devices[lane]:
            return True
    return state.idle_beside.any(spec)


def _turns(state: State, lanes: Sequence[Lane]) -> Iterator[_Turn]:
    """The first job of each kind."""
    kinds = {lane: state.kinds_waiting(lane) for lane in lanes}
    if sum(map(len, kinds.values())) <= _MOST_KINDS:
        for lane, queues in kinds.items():
            for kind, queue in queues.items():
                assert queue.first is not None
                yield queue.first, lane, kind, 0
        return
    seen: set[tuple[Lane, Needs]] = set()
    for key in islice(merge(*(state.site_queues[lane] for lane in lanes)), LOOKED_AT):
        job = state.jobs.rows[key[-1]]
        at = own_lane(job), job.needs()
        if at not in seen:
            seen.add(at)
            yield key, *at, 0


def _needs_devices(kind: Needs) -> bool:
    """Whether jobs of this kind hold devices wherever they run. A job that shares a device may join others, on one in use."""
    demand, alternatives, share = kind[0], kind[5], kind[6]
    return demand.devices > 0 and not alternatives and not any(share[:2])


def _wait(state: State, job: Job, before: Precedence, wait: Wait) -> Proposals:
    """The job waits, too. If no job before it could use the nodes that it could, it waits for room there, and else for them."""
    if job.id in before.jobs:
        return
    if not before.covers(state, job):
        yield (Wait(job.id, wait.reason, wait.detail, job.id),)
    elif job.cause_job == job.id:
        yield (Wait(job.id, Reason.NONE),)
    before.add(state, job)
