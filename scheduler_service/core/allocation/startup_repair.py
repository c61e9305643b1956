"""Repairs before a leadership begins: removes state from earlier settings that means nothing under the current ones."""

from scheduler_service.core.allocation.bindings import give_back_unused, in_own_cells, kept_for
from scheduler_service.core.allocation.earmarks import drop_earmarks
from scheduler_service.core.allocation.guarantee_loss import shrink
from scheduler_service.core.allocation.share_groups import count_turns
from scheduler_service.core.allocation.transitions import stop_job
from scheduler_service.core.model import Earmark, EventKind, Reason, Run, StopReason
from scheduler_service.core.model.memo import vc_of
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.core.model.values import ZERO, Micros, Vector, add
from scheduler_service.core.state.state import State
from scheduler_service.core.state.story import log_event


def repair_at_startup(state: State) -> None:
    """Drops earmarks on which jobs could not start, cells that their virtual cluster does not own now or does not use, and
    memos of policies that are not in use; and stops work without devices that has more than there is for it. If the settings
    are the same as before, this changes nothing."""
    now = state.cluster.clock_us
    for job_id in sorted({row.job_id for row in state.earmarks.rows.values() if not _serves(state, row)}):
        drop_earmarks(state, now, job_id, "it could not start there: the scheduler's settings are others than before")
    _forget(state)
    count_turns(state)
    if state.pools is None:
        return
    for vc_id in sorted(state.vcs.rows):
        shrink(state, state.pools, vc_id, f"virtual cluster {state.vcs.rows[vc_id].name} owns fewer cells now", now)
    give_back_unused(state)
    for node in sorted(state.nodes.rows):
        _clear_host(state, node, now)


def _forget(state: State) -> None:
    """Drops memos of policies that are not in use, unless they go with a job: they would miss what happens in the meantime."""
    for at, memo in sorted(state.memos.rows.items()):
        vc = vc_of(memo.subject)
        order = state.vc_orders.get(vc) if vc else state.site_order
        if not memo.job_id and (order is None or order.policy != memo.policy):
            state.put(state.memos, at, None)


def _serves(state: State, earmark: Earmark) -> bool:
    """Whether the earmark's job can start on it: it is scheduled, and may have those cells if it waits for cells of its own."""
    job = kept_for(state, earmark)
    if not state.serves(job) or state.pools is None or job.spec.guarantee is Guarantee.OPPORTUNISTIC:
        return state.serves(job)
    return in_own_cells(state, job, earmark.node, earmark.mask)


def _clear_host(state: State, node: int, now: Micros) -> None:
    """Stops work without devices that exceeds what goes with no device, as the percentage is smaller than it was; the last
    submitted goes first."""
    while min(beside_devices(state, node)) < 0:
        run = max((run for run in _without_devices(state, node) if _counts(state, run)), key=lambda run: run.key)
        job, most = state.jobs.rows[run.job_id], state.settings.reclaim_grace_us
        stop_job(state, now, job, StopReason.RECLAIMED, Reason.RECLAIMED, most_us=most)
        text = "less of the node is for work without devices now"
        log_event(state, now, job.id, EventKind.RECLAIMED, run=run.run, node=node, text=text)


def beside_devices(state: State, node: int) -> Vector:
    """Free resources of a node that go with none of its devices, once runs without devices that are stopping have left. Runs
    from before there were virtual clusters keep what they have in addition to that, until a job has a right to it."""
    if state.host is None:
        return ZERO
    free = state.host.free(node)
    for run in _without_devices(state, node) if min(free) < 0 else ():
        free = free if _counts(state, run) else add(free, run.charged._replace(devices=0))
    return free


def _without_devices(state: State, node: int) -> list[Run]:
    """Runs that take what goes with no device: also those that are to park, are parked, or are about to resume."""
    runs = (state.runs.rows[key] for key in state.runs_on.get(node, ()))
    return [run for run in runs if not run.devices or (run.parking is not None and run.parking.underway)]


def _counts(state: State, run: Run) -> bool:
    return not run.phase.exits_soon and state.serves(state.jobs.rows[run.job_id])
