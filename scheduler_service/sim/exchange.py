"""The exchange of cells between simulated tenants (HiveD, sections 3.3 and 5.4).

Offers come from their proxies, which the engine runs. Requests are posted here, as by any tenant: what a tenant requests
follows from its queue and from what it owns. The paper says neither when its tenants offered and requested cells nor for how
long, so all of this is assumed.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.exchange.ownership import least_owned
from scheduler_service.core.messages import Cells, PostRequested
from scheduler_service.core.model import Job
from scheduler_service.core.model.tenants.exchange import PostingKind
from scheduler_service.core.model.tenants.virtual_clusters import Owner, VcPolicy, VirtualCluster
from scheduler_service.core.model.values import SECOND, Micros
from scheduler_service.core.state.queue_keys import OWN_LANES
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.guaranteed import choices
from scheduler_service.sim.workloads.distributions import Model

HOUR = 3600 * SECOND


class Exchange(Model):
    """Settings for how tenants offer and request cells. Durations are in hours."""

    policy: Literal["balanced", "auction"] = Field(default="balanced", description="the arbiter's")
    offer_after_h: float = Field(default=10, ge=1e-3, le=1e6, description="how long a cell must have been idle to be offered")
    offer_for_h: float = Field(
        default=100, ge=1e-3, le=1e6, description="from then on, unless its owner needs it before it is taken"
    )
    keep: int = Field(default=0, ge=0, description="idle cells that are not offered")
    request_for_h: float = Field(
        default=10, ge=1e-3, le=1e6, description="how long a tenant wants cells; it may ask again then"
    )
    request_every_h: float = Field(
        default=1, ge=1e-3, le=1e6, description="how often tenants see what they lack, and request that"
    )

    @model_validator(mode="after")
    def _can_meet(self) -> "Exchange":
        if self.request_for_h > self.offer_for_h:
            raise ValueError(f"no offer for {self.offer_for_h:g} hours meets a request for {self.request_for_h:g}")
        return self

    def proxy(self, policy: VcPolicy) -> VcPolicy:
        """The tenant's policy with its proxy enabled."""
        after, window = _micros(self.offer_after_h), _micros(self.offer_for_h)
        return policy._replace(proxy_after_us=after, proxy_window_us=window, proxy_keep=self.keep)

    def tenants(self) -> "Tenants":
        return Tenants(_micros(self.request_for_h), _micros(self.request_every_h), _micros(self.offer_after_h))


class Tenants(NamedTuple):
    """The parameters of the requests of tenants that exchange cells."""

    request_us: Micros
    """Duration of a request."""
    every_us: Micros
    offered_after_us: Micros
    """The idle time after which others' cells are offered."""

    @property
    def patience_us(self) -> Micros:
        """How long to wait while nothing runs and no job comes: by then all given cells are back, all idle ones have been
        offered and requested, and jobs that have not started never will."""
        return self.offered_after_us + self.request_us + 2 * self.every_us

    def next_us(self, now: Micros) -> Micros:
        """The next time at which they look."""
        return now - now % self.every_us + self.every_us

    def requests(self, state: State, now: Micros) -> list[PostRequested]:
        """The requests of all tenants. Each is valid until they look again."""
        return [posting for vc in sorted(state.vcs.rows) for posting in self._requests_of(state, state.vcs.rows[vc], now)]

    def _requests_of(self, state: State, vc: VirtualCluster, now: Micros) -> Iterator[PostRequested]:
        assert state.pools is not None
        for pool, count in lacking(state, vc, now).items():
            for lot in lots(count):
                cells = Cells(pool, node_level(state.pools, pool), lot, 0, now + self.request_us)
                yield PostRequested(vc.name, "", PostingKind.REQUEST, cells, expires_us=now + self.every_us)


def lacking(state: State, vc: VirtualCluster, now: Micros) -> dict[str, int]:
    """How many more nodes of each pool the virtual cluster needs to guarantee all its jobs: those that wait, those that run in
    others' idle cells, and those whose cells go back now. Tasks of less than a node are assumed to fill nodes."""
    pools = state.pools
    assert pools is not None
    whole: dict[str, int] = defaultdict(int)
    devices: dict[str, int] = defaultdict(int)
    for job in _without_cells(state, vc):
        pool = next((choice.pool for choice in choices(pools, vc, job.spec)), None)
        if pool is None:
            continue
        size = pools.pools[pool].shape.devices
        for task in job.spec.tasks():
            nodes, rest = divmod(task.devices, size)
            whole[pool] += nodes
            devices[pool] += rest
    found = {}
    for pool in sorted(pools.has_cells_in(vc)):
        level = node_level(pools, pool)
        owned = least_owned(state, vc.id, pool, level, now, now + 1)
        bound = len(pools.pools[pool].bound_of(Owner(vc.id), pools.pools[pool].shape.node))
        count = whole[pool] - (-devices[pool] // pools.pools[pool].shape.devices) + bound - owned
        if count > 0:
            found[pool] = count
    return found


def node_level(pools: Pools, pool: str) -> str:
    """The level of the cells that are exchanged: whole nodes, like the paper's 8-GPU cells."""
    shape = pools.pools[pool].shape
    return shape.levels[shape.node]


def lots(count: int) -> list[int]:
    """Split requests: half of the cells in one, half of the rest in another, and so on. A request is met whole by one offer, so
    an offer of any size meets some.

    >>> lots(13)
    [7, 3, 2, 1]
    """
    found = []
    while count:
        found.append(-(-count // 2))
        count -= found[-1]
    return found


def _without_cells(state: State, vc: VirtualCluster) -> Iterator[Job]:
    for lane in OWN_LANES:
        for key in state.waiting(vc.name, lane):
            if key[-1] not in state.earmarks_of:
                yield state.jobs.rows[key[-1]]
    for job in sorted({*state.overflowing.get(vc.name, ()), *state.demoted.get(vc.name, ())}):
        yield state.jobs.rows[job]


def _micros(hours: float) -> Micros:
    return round(hours * HOUR)
