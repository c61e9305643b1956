"""JSQ+: on its arrival a job joins the queue of the kind of slot on which it completes first (AlloX, section 2.2)."""

import heapq
from collections.abc import Sequence

from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.choice_loop import Board
from scheduler_service.policies.allox.configuration_times import Known, Way
from scheduler_service.policies.allox.slots import Held, Kinds, held

UNKNOWN_US = 3600 * SECOND


def where_it_completes_first(state: State, board: Board, of: Sequence[Way]) -> Sequence[Way]:
    """The configuration with the least waiting and processing time, behind all jobs that are in the queues already."""
    if len(of) == 1:
        return of
    now = state.cluster.clock_us
    runs = held(state, now, UNKNOWN_US)
    return [min(of, key=lambda way: _completes(state, board, way, runs, now))]


def _completes(state: State, board: Board, way: Way, runs: Held, now: Micros) -> Micros:
    kinds = Kinds(state, Known(UNKNOWN_US), 0)
    slots = kinds.free_at(kinds.of(way.job.spec), runs, now).tolist()
    if not slots:
        return 1 << 62
    needs = way.job.spec.needs()
    for item in board.queued.values():
        for other in item.offered:
            if other.job.spec.needs() == needs:
                heapq.heapreplace(slots, slots[0] + other.time_us)
    return int(slots[0]) + way.time_us
