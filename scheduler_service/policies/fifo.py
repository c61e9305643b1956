"""FIFO: one queue, first come, first served. Preempts no job.

While the first job waits, those behind it start that cannot delay it (`precedence`): they take nothing that it could use. In
the strict order none do. FitGpp (papers: section 4.1) calls that vanilla FIFO.
"""

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Rng
from scheduler_service.core.model import Reason
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.options import Options
from scheduler_service.policies.placing.first_fit import place_on_earmarks, start_on_earmarks
from scheduler_service.policies.queueing.backfill import backfill
from scheduler_service.policies.queueing.in_order import head_of, serve, serve_strictly, start_behind
from scheduler_service.policies.queueing.jobs_behind import may_start_behind
from scheduler_service.policies.stages import Stages

_NONE_SKIPPED = dict.fromkeys(OWN_LANES, 0)
_NO_ROOM = Reason.NO_ROOM


def fifo(state: State, _rng: Rng) -> Proposals:
    """Both classes in one queue. While its first job waits, those alone are looked at that may start behind it."""
    first = None if state.pending.policies else head_of(state, _NONE_SKIPPED)
    if first is not None and first.reason is _NO_ROOM:
        if may_start_behind(state, OWN_LANES, first):
            yield from start_behind(state, OWN_LANES, first)
        return
    if state.earmarks_of:
        yield from start_on_earmarks(state, place_on_earmarks)
    yield from serve(state, OWN_LANES)


def strict_fifo(state: State, _rng: Rng) -> Proposals:
    """Both classes in one queue, whose first job blocks all others while it waits."""
    first = None if state.pending.policies else head_of(state, _NONE_SKIPPED)
    if first is None or first.reason is not _NO_ROOM:
        yield from start_on_earmarks(state, place_on_earmarks)
        yield from serve_strictly(state, OWN_LANES)


def stages(options: Options) -> Stages:
    """FIFO, with backfill or without; as published, in strict order."""
    return Stages(backfill if options.backfill else strict_fifo if options.fitgpp.in_order else fifo)
