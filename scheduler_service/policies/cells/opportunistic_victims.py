"""Who leaves among the opportunistic runs of a virtual cluster, for an opportunistic job of its own that finds nothing idle.

The same two rules as in its own cells (`victims`), with other victims: a trial has best-effort runs preempted; and where the
virtual cluster goes by priority, so has who has more of it. Lower priorities go first, then by score. What they leave is kept
for the job, until somebody comes who has a right to it.
"""

from collections.abc import Sequence

from scheduler_service.core.cells.opportunistic_search import find_idle
from scheduler_service.core.cells.request import requested_cells
from scheduler_service.core.messages import Action, Plan, Preempt, Reclaim, Rng, Spot
from scheduler_service.core.model import Job, JobClass
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.virtual_clusters import VirtualCluster
from scheduler_service.core.state.eligibility import why_not
from scheduler_service.core.state.state import State
from scheduler_service.policies.cells.guaranteed import in_the_way_of, keep, spots_at, suits
from scheduler_service.policies.cells.host_share import overdrawn
from scheduler_service.policies.cells.victims import BY_PRIORITY, PREEMPTING, by_pool, decided, in_order, leaves_of, may_go


def make_opportunistic_leave(state: State, vc: VirtualCluster, job: Job, rng: Rng) -> Plan | None:
    """Whom the job has leave, and what it gets of that; None: nobody whose going would make room."""
    pools, policy = state.pools, vc.policy
    assert pools is not None
    if policy.name in PREEMPTING and job.spec.job_class is JobClass.TRIAL:
        able = [
            other
            for other in _opportunistic_jobs(state, vc)
            if may_go(state, other, job) and other.preempted_for_trial < policy.cap
        ]
        order, decision = in_order(state, vc, job, able, rng)
    elif policy.name == BY_PRIORITY:
        order, decision = (
            [
                other
                for other in reversed(_opportunistic_jobs(state, vc))
                if why_not(state, Claim.PRIORITY, job, other, ()) is None
            ],
            None,
        )
    else:
        return None
    order = sorted(order, key=lambda other: other.priority)
    for ordered in by_pool(state, pools, order):
        if _without(state, job, ordered) is None:
            continue  # so that who waits in vain costs one look, however many there are
        found = _enough(state, job, ordered, one=policy.name == "fitgpp")
        if found is None:
            continue
        chosen, spots = found
        shown = None if policy.name == BY_PRIORITY else decision or decided(job, vc, len(chosen))
        going: list[Action] = [
            Reclaim(other.id, job.id) if shown is None else Preempt(other.id, job.id, policy.cap, shown) for other in chosen
        ]
        return (*going, *keep(job, spots, in_the_way_of(state, spots), shown))
    return None


def _opportunistic_jobs(state: State, vc: VirtualCluster) -> list[Job]:
    """Jobs of the virtual cluster that run as opportunistic and hold leaves, none of whose tasks is leaving; by their ids."""
    ids = sorted({key.job_id for key in state.opportunistic_runs.get(vc.name, ())})
    return [state.jobs.rows[job_id] for job_id in ids if all(not run.phase.exits_soon for run in state.runs_of(job_id))]


def _enough(state: State, job: Job, order: Sequence[Job], one: bool) -> tuple[list[Job], list[Spot]] | None:
    """The first of these whose going makes room, by itself (`one`) or with those before it, without any that is not needed; and
    where the job then goes."""
    for victim in order if one else ():
        spots = _without(state, job, [victim])
        if spots is not None:
            return [victim], spots
    chosen: list[Job] = []
    spots = None
    for victim in order:
        chosen.append(victim)
        if (spots := _without(state, job, chosen)) is not None:
            break
    for victim in list(chosen) if spots is not None else ():
        others = [other for other in chosen if other is not victim]
        fewer = _without(state, job, others) if others else None
        if fewer is not None:
            chosen, spots = others, fewer
    return None if spots is None else (chosen, spots)


def _without(state: State, job: Job, gone: Sequence[Job]) -> list[Spot] | None:
    """Where the job would go once these have left, all in one pool. Changes nothing."""
    pools = state.pools
    assert pools is not None
    name = pools.positions[state.runs_of(gone[0].id)[0].node].pool
    if not suits(pools, job, name):
        return None
    pool = pools.pools[name]
    wanted = requested_cells(job.spec, pool.shape, pools.share(name))
    if isinstance(wanted, str):
        return None
    leaves = leaves_of(state, pools, gone).get(name, {})
    before = {slot: pool.held(slot)[1] for slot in leaves}
    try:
        for slot, mask in leaves.items():
            pool.set_opportunistic(slot, before[slot] & ~mask)
        placed = find_idle(pool, wanted)
    finally:
        for slot, mask in before.items():
            pool.set_opportunistic(slot, mask)
    if placed is None:
        return None
    spots = spots_at(pools, name, placed)
    return None if overdrawn(state, job, spots, in_the_way_of(state, spots)) else spots
