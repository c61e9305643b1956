"""Serves the jobs of queues in order, until one does not fit; then those behind it that cannot delay it (`precedence`)."""

from collections.abc import Callable, Generator, Sequence

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Place, Plan, Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.state.queue_keys import Lane, own_lane
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import (
    leaves_queue,
    no_room,
    place,
    place_on_first_node,
)
from scheduler_service.policies.queueing.jobs_behind import may_start_behind, serve_behind
from scheduler_service.policies.queueing.precedence import Precedence

_NO_ROOM = Reason.NO_ROOM


def serve(state: State, lanes: Sequence[Lane]) -> Proposals:
    """Starts the queued jobs of the lanes in order; once one does not fit, those that do not delay it."""
    waits = yield from serve_in_order(state, lanes)
    if waits is not None and may_start_behind(state, lanes, waits):
        yield from start_behind(state, lanes, waits)


def serve_strictly(state: State, lanes: Sequence[Lane]) -> Proposals:
    """Starts the queued jobs of the lanes in order, until one does not fit; each on the first node that has room."""
    yield from serve_in_order(state, lanes, place_on_first_node)


def serve_in_order(
    state: State, lanes: Sequence[Lane], place: Callable[[State, Job], Place | None] = place
) -> Generator[Plan, str | None, Job | None]:
    """Returns the first job that does not fit. Costs one look for each job that starts."""
    skipped = dict.fromkeys(lanes, 0)
    while (job := head_of(state, skipped)) is not None:
        action = place(state, job) or no_room(state, job)
        refused = yield (action,)
        if isinstance(action, Wait) and not leaves_queue(action):
            if len(lanes) > 1:
                yield from not_looked_at(state, [other for other in lanes if other is not own_lane(job)])
            return job
        skipped[own_lane(job)] += refused is not None  # else it has left the queue
    return None


def start_behind(state: State, lanes: Sequence[Lane], waits: Job) -> Proposals:
    before = Precedence()
    before.add(state, waits)
    yield from serve_behind(state, lanes, before)


def not_looked_at(state: State, lanes: Sequence[Lane]) -> Proposals:
    """The first jobs of these queues wait for a job of another queue, and not for room any more, as when they were looked at.
    Not one that waits for nodes that no job before it could use."""
    for lane in lanes:
        key = state.site_queues[lane].first
        if key is not None and (job := state.jobs.rows[key[-1]]).reason is _NO_ROOM and job.cause_job != job.id:
            yield (Wait(key[-1], Reason.NONE),)


def head_of(state: State, skipped: dict[Lane, int]) -> Job | None:
    """The first job of these queues taken together, behind those that were skipped of each."""
    first: QueueKey | None = None
    for lane, skip in skipped.items():
        queue = state.site_queues[lane]
        key = queue.key_behind(skip) if skip else queue.first
        if key is not None and (first is None or key < first):
            first = key
    return None if first is None else state.jobs.rows[first[-1]]
