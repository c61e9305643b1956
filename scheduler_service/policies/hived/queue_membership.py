"""The queues of its virtual cluster that a job is in: there is one for each pool, and one for each pin."""

from collections.abc import Iterable, Iterator, Set

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.model import Job
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.core.state.queue_keys import Named, named_by
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.guaranteed import Choice, choices, holds_up_now

Way = tuple[Job, Choice]
"""A job in one of its configurations, and a pool in which it may run in that."""


def ways(pools: Pools, vc: VirtualCluster, job: Job) -> Iterator[Way]:
    """The ways of a job, in the order in which they are tried."""
    return ((one, choice) for one in job.in_each_configuration() for choice in choices(pools, vc, one.spec))


def ways_in(pools: Pools, vc: VirtualCluster, job: Job, named: Named) -> list[Way]:
    """The ways of a job in the queue of jobs that name the same cells."""
    return [(one, choice) for one, choice in ways(pools, vc, job) if not job.spec.alternatives or named_by(one) == named]


def in_pool(job: Job, pool: str) -> Job:
    """The job as it is in the queue of one pool, as if it had named that."""
    if job.spec.cells.pool == pool:
        return job
    return with_changes(job, spec=with_changes(job.spec, cells=job.spec.cells._replace(pool=pool)))


def held_up(state: State, vc: VirtualCluster, mine: Iterable[Way]) -> Iterator[Choice]:
    """The choices, of these ways of a job, for which others wait behind it. Not where it never will have what it wants, though
    it will elsewhere: it would be unclear what they wait for. Not where what it wants is faulty or closed now, either."""
    return (choice for one, choice in mine if holds_up_now(state, vc, in_pool(one, choice.pool)))


def in_open_pools(pools: Pools, vc: VirtualCluster, job: Job, held: Set[Choice]) -> list[Job]:
    """The job as it is to be tried: in each of its configurations, and there in the pools for which no job waits before it."""
    if not (held or job.spec.alternatives):  # nearly always
        return [job]
    found: list[Job] = []
    for one in job.in_each_configuration():
        mine = choices(pools, vc, one.spec)
        left = [choice for choice in mine if choice not in held]
        found += [one] if len(left) == len(mine) else [in_pool(one, choice.pool) for choice in left]
    return found
