"""FIFO: one queue, first come first served, and the first blocks those behind it. Preempts nobody.

FitGpp (papers: section 4.1) calls this vanilla FIFO; it is also how best-effort jobs are served under FitGpp.
"""

from collections.abc import Sequence

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Rng, Wait
from scheduler_service.core.model import Job, Reason
from scheduler_service.core.state.queue_keys import OWN_LANES, Lane, own_lane
from scheduler_service.core.state.queue_order import QueueKey
from scheduler_service.core.state.state import State
from scheduler_service.policies.placing.first_fit import no_room, place, place_on_earmarks, start_on_earmarks

_NONE_SKIPPED = dict.fromkeys(OWN_LANES, 0)
_NO_ROOM, _TOO_LARGE = Reason.NO_ROOM, Reason.TOO_LARGE


def fifo(state: State, _rng: Rng) -> Proposals:
    """Both classes in one queue. While its first job waits, those that come to stand behind it wait too."""
    if not state.unsettled and (first := head_of(state, _NONE_SKIPPED)) is not None and first.reason is _NO_ROOM:
        return
    yield from start_on_earmarks(state, place_on_earmarks)
    yield from serve(state, OWN_LANES)


def serve(state: State, lanes: Sequence[Lane]) -> Proposals:
    """Starts the queued jobs of the lanes in order, until one does not fit. Costs one look for each job that starts."""
    skipped = dict.fromkeys(lanes, 0)
    while (job := head_of(state, skipped)) is not None:
        action = place(state, job) or no_room(state, job)
        refused = yield (action,)
        if isinstance(action, Wait) and action.reason is not _TOO_LARGE:
            yield from not_looked_at(state, [other for other in lanes if other is not own_lane(job)])
            return
        skipped[own_lane(job)] += refused is not None  # else it has left the queue


def not_looked_at(state: State, lanes: Sequence[Lane]) -> Proposals:
    """The first of these queues wait for a job of another queue, and no more for room, as they did when they were looked at."""
    for lane in lanes:
        key = state.site_queues[lane].first
        if key is not None and state.jobs.rows[key[-1]].reason is _NO_ROOM:
            yield (Wait(key[-1], Reason.NONE),)


def head_of(state: State, skipped: dict[Lane, int]) -> Job | None:
    """The first job of these queues taken together, behind those that were skipped of each."""
    first: QueueKey | None = None
    for lane, skip in skipped.items():
        queue = state.site_queues[lane]
        key = queue.behind(skip) if skip else queue.first
        if key is not None and (first is None or key < first):
            first = key
    return None if first is None else state.jobs.rows[first[-1]]
