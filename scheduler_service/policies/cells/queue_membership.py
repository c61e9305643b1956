"""In which queues of its virtual cluster a job stands: there is one for each pool, and one for each pin."""

from collections.abc import Sequence

from scheduler_service.core.model import Job
from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.virtual_clusters import VirtualCluster
from scheduler_service.core.state.state import State
from scheduler_service.policies.cells.guaranteed import Choice, holds_up


def in_pool(job: Job, pool: str) -> Job:
    """As it stands in the queue of one pool, as if it had named that."""
    if job.spec.cells.pool == pool:
        return job
    return changed(job, spec=changed(job.spec, cells=job.spec.cells._replace(pool=pool)))


def held_up(state: State, vc: VirtualCluster, job: Job, mine: Sequence[Choice]) -> list[Choice]:
    """Of these choices of the job those in which others wait for it. Not where it never will have what it wants, though it
    will elsewhere: nobody would know for what they wait."""
    return [choice for choice in mine if holds_up(state, vc, in_pool(job, choice.pool))]
