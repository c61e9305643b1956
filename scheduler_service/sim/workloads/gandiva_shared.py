"""Figure 18 of the Gandiva paper (OSDI 2018): searches in a cluster that is loaded by others' jobs.

Each search is a virtual cluster, and so are the others. The paper begins the searches in the middle of its 9-day trace. Here
they begin after one day, so that less has to be simulated.
"""

from collections.abc import Iterator
from heapq import merge
from typing import Literal

from pydantic import Field

from scheduler_service.core.model.rows import changed
from scheduler_service.core.model.tenants.virtual_clusters import Guarantee
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads import gandiva, gandiva_search
from scheduler_service.sim.workloads.arriving import Recorded
from scheduler_service.sim.workloads.distributions import Model
from scheduler_service.sim.workloads.gandiva import MINUTE, GandivaTrace
from scheduler_service.sim.workloads.gandiva_search import GandivaSearch

OTHERS = "others"
"""The virtual cluster of the jobs that are there."""


class GandivaShared(Model):
    """A trace, and searches beside it. The simulation ends when all have found what they look for."""

    kind: Literal["gandiva-shared"] = "gandiva-shared"
    others: GandivaTrace = Field(default=GandivaTrace(), description="the jobs that are there")
    searches: tuple[GandivaSearch, ...] = Field(default=(GandivaSearch(),), min_length=1, max_length=100)
    at_min: float = Field(default=1440, ge=0, le=1e6, description="when the searches begin")

    @property
    def arrivals(self) -> Recorded:
        """The times are part of what is drawn."""
        return Recorded()

    @property
    def begins_us(self) -> int:
        return round(self.at_min * MINUTE)


def name_of(place: int) -> str:
    """Of the virtual cluster of a search, and of its user; counted from 0.

    >>> name_of(0)
    'search-1'
    """
    return f"search-{place + 1}"


def searching(model: GandivaShared, place: int) -> Iterator[SimJob]:
    """The jobs of one search. They run in its own cells alone, since the paper gives each search its GPUs."""
    vc, begins = name_of(place), model.begins_us
    for job in gandiva_search.jobs(model.searches[place]):
        spec = changed(job.spec, vc=vc, guarantee=Guarantee.GUARANTEED)
        yield job._replace(spec=spec, submit_us=begins + job.submit_us, user=vc, vc=vc)


def others(model: GandivaShared, seed: int) -> Iterator[SimJob]:
    """The jobs that are there. They overflow into others' idle cells, and are reclaimed."""
    for job in gandiva.jobs(model.others, seed):
        yield job._replace(spec=changed(job.spec, vc=OTHERS, guarantee=Guarantee.OVERFLOW), vc=OTHERS)


def jobs(model: GandivaShared, seed: int) -> Iterator[SimJob]:
    """All, in the order in which they come."""
    each = (searching(model, place) for place in range(len(model.searches)))
    return merge(others(model, seed), *each, key=lambda job: job.submit_us)
