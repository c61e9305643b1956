"""What a leadership puts right before it begins: what stands from other settings, and means nothing under these."""

from scheduler_service.core.binding import give_back_unused
from scheduler_service.core.change import drop_earmarks
from scheduler_service.core.shrinking import shrink
from scheduler_service.core.state import State


def begin_anew(state: State) -> None:
    """Nothing is kept for jobs that wait for ever, and no cell is bound that its virtual cluster does not own now, or that
    nobody is in. Where the settings are as they were, this changes nothing."""
    now = state.cluster.clock_us
    for job_id in sorted(state.earmarks_of):
        if not state.serves(state.jobs.rows[job_id]):
            drop_earmarks(state, now, job_id, "it does not go with whether the site has virtual clusters now")
    if state.pools is None:
        return
    for vc_id in sorted(state.vcs.rows):
        shrink(state, state.pools, vc_id, f"virtual cluster {state.vcs.rows[vc_id].name} owns fewer cells now", now)
    give_back_unused(state)
