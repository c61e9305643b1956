"""The two layers: each virtual cluster is served in its own cells, and what is idle then goes to opportunistic work."""

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.job import Job, OperationPhase, Reason
from scheduler_service.core.messages import Rng
from scheduler_service.core.state import State
from scheduler_service.core.vc import VirtualCluster
from scheduler_service.core.waiting import Lane, QueueKey
from scheduler_service.policies.cells.guaranteed import place_on_cells_kept, plan_in_cells, why_not
from scheduler_service.policies.cells.opportunistic import promote, serve_opportunistic


def cells() -> Policy:
    """HiveD's."""

    def policy(state: State, rng: Rng) -> Proposals:
        yield from _start_on_cells_kept(state)
        for vc_id in sorted(state.vc_ids[name] for name in {name for name, _ in state.lanes}.union(state.overflowing)):
            yield from serve_guaranteed(state, state.vcs.rows[vc_id], rng)
        while (vc := (yield from serve_opportunistic(state))) is not None:
            yield from serve_guaranteed(state, vc, rng)

    return policy


def _start_on_cells_kept(state: State) -> Proposals:
    """Jobs for which everybody has left that was in their way."""
    for job_id in sorted(state.earmarks_of, key=lambda job_id: min(state.earmarks_of[job_id])):
        earmarks = [state.operations.rows[i] for i in state.earmarks_of[job_id]]
        if all(earmark.phase is OperationPhase.READY for earmark in earmarks):
            yield (place_on_cells_kept(state, state.jobs.rows[job_id]),)


def serve_guaranteed(state: State, vc: VirtualCluster, _rng: Rng) -> Proposals:
    """The virtual cluster's jobs in order, until one does not fit in its cells; it holds up those behind it. One that waits for
    opportunistic runs to leave has its cells, and holds up nobody. Whoever overflowed comes after those who wait."""
    lanes = (Lane.TRIAL, Lane.BEST_EFFORT)
    skipped = dict.fromkeys(lanes, 0)
    while (head := _head(state, vc, skipped)) is not None:
        lane, job = head
        if job.id in state.earmarks_of:
            skipped[lane] += 1
            continue
        plan = plan_in_cells(state, vc, job)
        if plan is None:
            wait = why_not(state, vc, job)
            yield (wait,)
            if wait.reason is not Reason.NEVER_IN_QUOTA:
                return
            skipped[lane] += 1
        elif (yield plan) is not None or job.id in state.earmarks_of:
            skipped[lane] += 1
    yield from promote(state, vc)


def _head(state: State, vc: VirtualCluster, skipped: dict[Lane, int]) -> tuple[Lane, Job] | None:
    """The first job of the lanes taken together, behind those that were skipped of each."""
    first: tuple[QueueKey, Lane] | None = None
    for lane, skip in skipped.items():
        queue = state.lanes.get((vc.name, lane), ())
        if skip < len(queue) and (first is None or (queue[skip], lane) < first):
            first = queue[skip], lane
    return None if first is None else (first[1], state.jobs.rows[first[0][-1]])
