"""The two layers: each virtual cluster is served in its own cells, and what is idle then goes to opportunistic work."""

from collections.abc import Generator

from scheduler_service.core.engine import Policy, Proposals
from scheduler_service.core.job import Job, OperationPhase, Reason
from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.state import State
from scheduler_service.core.vc import Guarantee, VirtualCluster
from scheduler_service.core.waiting import Lane, QueueKey, place_of
from scheduler_service.policies.cells.exchanging import arbitrate, run_proxies
from scheduler_service.policies.cells.guaranteed import holds_up, place_on_cells_kept, plan_in_cells, why_not
from scheduler_service.policies.cells.opportunistic import promote, serve_opportunistic, why_not_opportunistic
from scheduler_service.policies.cells.victims import BY_PRIORITY, PREEMPTING, make_way, may_preempt, preempt_for_trial
from scheduler_service.policies.exchange import Match, balanced

POLICIES = ("fifo", BY_PRIORITY, *PREEMPTING)
"""What a virtual cluster may go by inside."""


def cells(match: Match | None = balanced, promotes: bool = True) -> Policy:
    """HiveD's. `match`: how cells are exchanged; None: as tenants agree among themselves. `promotes`: what overflowed becomes
    guaranteed where it runs, once its virtual cluster can have those cells; of that the paper has nothing."""

    def policy(state: State, rng: Rng) -> Proposals:
        while True:
            yield from serve(state, rng)
            yield from run_proxies(state)
            if not (yield from arbitrate(state, match)):
                return

    def serve(state: State, rng: Rng) -> Proposals:
        yield from start_on_cells_kept(state)
        for vc_id in sorted(state.vc_ids[name] for name in _with_work(state)):
            yield from serve_guaranteed(state, state.vcs.rows[vc_id], rng, promotes)
        while (vc := (yield from serve_opportunistic(state, rng))) is not None:
            yield from serve_guaranteed(state, vc, rng, promotes)

    return policy


def _with_work(state: State) -> set[str]:
    """Virtual clusters that have jobs which wait, or would rather be guaranteed."""
    return {name for name, _ in state.lanes}.union(state.overflowing, state.demoted)


def start_on_cells_kept(state: State) -> Proposals:
    """Jobs for which everybody has left that was in their way."""
    for job_id in sorted(state.earmarks_of, key=lambda job_id: min(state.earmarks_of[job_id])):
        earmarks = [state.operations.rows[i] for i in state.earmarks_of[job_id]]
        if all(earmark.phase is OperationPhase.READY for earmark in earmarks):
            yield (place_on_cells_kept(state, state.jobs.rows[job_id]),)


def serve_guaranteed(state: State, vc: VirtualCluster, rng: Rng, promotes: bool) -> Proposals:
    """The virtual cluster's jobs in order, until one does not fit in its cells; it holds up those behind it. Where trials have
    others preempted, they have a queue of their own, served first. Whoever overflowed comes after those who wait, and whoever
    lost its cells before them."""
    if promotes and vc.name in state.demoted:
        yield from promote(state, vc, outranking(state, vc))
    trials_first = vc.policy.name in PREEMPTING
    queues = ((Lane.TRIAL,), (Lane.BEST_EFFORT,)) if trials_first else ((Lane.TRIAL, Lane.BEST_EFFORT),)
    for lanes in queues:
        if not (yield from _serve(state, vc, lanes, rng)):
            return
    if promotes:
        for jobs in (state.demoted, state.overflowing):
            yield from promote(state, vc, jobs.get(vc.name, frozenset()))


def outranking(state: State, vc: VirtualCluster) -> set[int]:
    """Jobs that run without the cells that they had, and would stand before all that wait for some."""
    head, aging = _head(state, vc, {Lane.TRIAL: 0, Lane.BEST_EFFORT: 0}), state.settings.aging_us
    jobs = state.demoted[vc.name]
    if head is None:
        return set(jobs)
    first = place_of(head[1], aging, head[1].requeued)
    return {job_id for job_id in jobs if place_of(state.jobs.rows[job_id], aging, has_run=True) < first}


def _serve(state: State, vc: VirtualCluster, lanes: tuple[Lane, ...], rng: Rng) -> Generator[Plan, str | None, bool]:
    """Whether nobody waits for cells. One that waits for others to leave has its cells, and holds up nobody."""
    skipped = dict.fromkeys(lanes, 0)
    while (head := _head(state, vc, skipped)) is not None:
        lane, job = head
        if job.id not in state.earmarks_of:
            plan = plan_in_cells(state, vc, job)
            if plan is not None:
                yield plan
            elif vc.policy.name == BY_PRIORITY:
                yield from make_way(state, vc, job)
            elif lane is Lane.TRIAL and vc.policy.name in PREEMPTING and may_preempt(state, vc):
                plan = preempt_for_trial(state, vc, job, rng)
                if plan is not None:
                    yield plan
        queue = state.lanes.get((vc.name, lane), ())
        if skipped[lane] >= len(queue) or queue[skipped[lane]][-1] != job.id:
            continue  # it has started
        if job.id not in state.earmarks_of:
            wait = why_not(state, vc, job)
            never = wait.reason is Reason.NEVER_IN_QUOTA
            yield (why_not_opportunistic(job) if never and job.spec.guarantee is Guarantee.OVERFLOW else wait,)
            if holds_up(state, vc, job):
                return False
        skipped[lane] += 1
    return True


def _head(state: State, vc: VirtualCluster, skipped: dict[Lane, int]) -> tuple[Lane, Job] | None:
    """The first job of the lanes taken together, behind those that were skipped of each."""
    first: tuple[QueueKey, Lane] | None = None
    for lane, skip in skipped.items():
        queue = state.lanes.get((vc.name, lane), ())
        if skip < len(queue) and (first is None or (queue[skip], lane) < first):
            first = queue[skip], lane
    return None if first is None else (first[1], state.jobs.rows[first[0][-1]])
