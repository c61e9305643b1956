"""Figure 18 of the Gandiva paper (OSDI 2018): searches on a cluster with others' jobs.

Each search is a virtual cluster, and so are the others. The paper begins the searches in the middle of its 9-day trace. Here
they begin after one day, so that less has to be simulated.
"""

from collections.abc import Iterator
from heapq import merge
from typing import Literal

from pydantic import Field

from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads import gandiva, gandiva_search
from scheduler_service.sim.workloads.arriving import Recorded
from scheduler_service.sim.workloads.distributions import Model
from scheduler_service.sim.workloads.gandiva import MINUTE, GandivaTrace
from scheduler_service.sim.workloads.gandiva_search import GandivaSearch

OTHERS = "others"
"""The virtual cluster of the others' jobs."""


class GandivaShared(Model):
    """A trace with additional searches. The simulation ends when all searches have found their configurations."""

    kind: Literal["gandiva-shared"] = "gandiva-shared"
    others: GandivaTrace = Field(default=GandivaTrace(), description="the jobs that are there")
    searches: tuple[GandivaSearch, ...] = Field(default=(GandivaSearch(),), min_length=1, max_length=100)
    at_min: float = Field(default=1440, ge=0, le=1e6, description="when the searches begin")

    @property
    def arrivals(self) -> Recorded:
        """Recorded arrivals, because the times are part of the draw."""
        return Recorded()

    @property
    def begins_us(self) -> int:
        return round(self.at_min * MINUTE)


def name_of(place: int) -> str:
    """The name of a search's virtual cluster and of its user; `place` counts from 0.

    >>> name_of(0)
    'search-1'
    """
    return f"search-{place + 1}"


def searching(model: GandivaShared, place: int) -> Iterator[SimJob]:
    """Yield the jobs of one search. They run only in its own cells, since the paper gives each search its GPUs."""
    vc, begins = name_of(place), model.begins_us
    for job in gandiva_search.jobs(model.searches[place]):
        spec = with_changes(job.spec, vc=vc, guarantee=Guarantee.GUARANTEED)
        yield job._replace(spec=spec, submit_us=begins + job.submit_us, user=vc, vc=vc)


def jobs_of_others(model: GandivaShared, seed: int) -> Iterator[SimJob]:
    """Yield the others' jobs. They overflow into idle cells of the searches, and are reclaimed."""
    for job in gandiva.jobs(model.others, seed):
        yield job._replace(spec=with_changes(job.spec, vc=OTHERS, guarantee=Guarantee.OVERFLOW), vc=OTHERS)


def jobs(model: GandivaShared, seed: int) -> Iterator[SimJob]:
    """Yield all jobs in order of arrival."""
    each = (searching(model, place) for place in range(len(model.searches)))
    return merge(jobs_of_others(model, seed), *each, key=lambda job: job.submit_us)
