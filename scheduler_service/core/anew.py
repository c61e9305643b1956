"""What a leadership puts right before it begins: what stands from other settings, and means nothing under these."""

from scheduler_service.core.binding import give_back_unused, in_own_cells
from scheduler_service.core.earmarks import drop_earmarks
from scheduler_service.core.job import Operation
from scheduler_service.core.shrinking import shrink
from scheduler_service.core.state import State
from scheduler_service.core.vc import Guarantee


def begin_anew(state: State) -> None:
    """Nothing is kept for jobs that could not start on it, and no cell is bound that its virtual cluster does not own now, or
    that nobody is in. Where the settings are as they were, this changes nothing."""
    now = state.cluster.clock_us
    for job_id in sorted({row.job_id for row in state.operations.rows.values() if not _serves(state, row)}):
        drop_earmarks(state, now, job_id, "it could not start there: the scheduler's settings are others than before")
    if state.pools is None:
        return
    for vc_id in sorted(state.vcs.rows):
        shrink(state, state.pools, vc_id, f"virtual cluster {state.vcs.rows[vc_id].name} owns fewer cells now", now)
    give_back_unused(state)


def _serves(state: State, earmark: Operation) -> bool:
    """Whether its job can start on it: it is scheduled, and may have those cells, if it waits for its virtual cluster's."""
    job = state.jobs.rows[earmark.job_id]
    if not state.serves(job) or state.pools is None or job.spec.guarantee is Guarantee.OPPORTUNISTIC:
        return state.serves(job)
    return in_own_cells(state, job, earmark.node, earmark.mask)
