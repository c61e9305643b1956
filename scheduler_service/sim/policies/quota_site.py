"""The site of HiveD's baseline: tenants own numbers of devices instead of cells (`by_count`)."""

from collections import Counter
from dataclasses import replace

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.queries import has_level
from scheduler_service.core.messages import NodeSeen, VcRequested
from scheduler_service.core.model import Cluster
from scheduler_service.core.model.tenants.virtual_clusters import Quota
from scheduler_service.core.observe import observe
from scheduler_service.core.state.state import State
from scheduler_service.sim.nodes import node_name
from scheduler_service.sim.policies.by_count import DEVICE, by_count
from scheduler_service.sim.world import Site


def quota_site(site: Site, overflows: bool) -> Site:
    """The site with quotas of devices, and with the policy that serves them, which takes `overflows`."""
    pools = _pools(site)
    requests = tuple(in_devices(request, pools) for request in site.vcs)
    return replace(site, vcs=requests, policy=by_count(overflows))


def in_devices(request: VcRequested, pools: Pools) -> VcRequested:
    """The request with each quota as the same number of devices, which are cells of the pool's lowest level. A quota of an
    unknown pool or level stays as it is, so that the scheduler refuses it."""
    counts: Counter[tuple[str, str]] = Counter()
    for pool, level, cells in request.quotas or ():
        if has_level(pools, pool, level):
            shape = pools.pools[pool].shape
            counts[pool, shape.levels[DEVICE]] += cells * shape.size(shape.levels.index(level))
        else:
            counts[pool, level] += cells
    return replace(request, quotas=tuple(Quota(pool, level, cells) for (pool, level), cells in counts.items()))


def _pools(site: Site) -> Pools:
    """The pools of the site's nodes."""
    state = State(Cluster("", site.seed), site.settings)
    for number, inventory in enumerate(site.nodes, 1):
        observe(state, NodeSeen(node_name(number), "", inventory), 0)
    assert state.pools is not None  # there are virtual clusters
    return state.pools
