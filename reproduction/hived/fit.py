"""How the HiveD workload's tenants were fitted to the numbers that the paper prints.

Two numbers of each tenant are fitted, on the GPUs that its jobs would hold in an infinite cluster: its load, to the effective
utilisation of its cells (table 4), and how much its days differ, to its Relative Fluctuation (table 5). The loads of all
together are to be 70 % of 279 nodes: the figure of section 5.2.2, with which table 5's utilisations agree, too. What is missing
for that is given to prod-c. Less than half of it would match its row in table 4, but not that in table 5, and in the paper it
is one of those "whose demands are always exceeding the assigned cells".

`python -m reproduction.hived.fit` prints the tenants' fitted numbers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from reproduction.hived.published import BALANCED, DEFAULT, UTILISATION
from scheduler_service.sim.experiments.history import Floats, Steps
from scheduler_service.sim.jobs import SimJob
from scheduler_service.sim.workloads import hived
from scheduler_service.sim.workloads.hived import DAY_S, NODE_GPUS, NODES, SPARE, TENANTS, Hived, Tenant

HOUR_US = 3_600_000_000
REST = "prod-c"
OWNED = NODES - SPARE
PAPERS = Hived()
SWINGS = (0.0, 2.0)
"""Range of the swings to search."""
HALVINGS = 7
SMALL = 2
"""A tenant with at most this many nodes may have a job as large as its quota. What that would hold in an infinite cluster says
little about its own cells, where it waits. So for these tenants the load is the effective utilization itself."""


class Shape(NamedTuple):
    """The GPUs that one tenant's jobs would hold in an infinite cluster, hour by hour, relative to their average request."""

    hours: Floats

    def fluctuation(self, load: float) -> float:
        """Eqn 3 of the paper, for a tenant that asks for this share of what it owns."""
        return float(np.sqrt(np.mean((load * self.hours - 1) ** 2)))

    def share_used(self, load: float) -> float:
        """The share of what it owns that it would use."""
        return float(np.minimum(load * self.hours, 1).mean())


def gpus_without_waits(jobs: Iterable[SimJob], days: float) -> dict[str, Floats]:
    """How many GPUs each tenant's jobs would hold if none ever waited, hour by hour."""
    lives: dict[str, list[tuple[int, int, int]]] = {}
    for job in jobs:
        lives.setdefault(job.vc, []).append((job.submit_us, job.submit_us + job.work_us, job.spec.demand.devices))
    edges = np.arange(0, days * DAY_S // 3600 + 1) * HOUR_US
    made: dict[str, Floats] = {}
    for name, of in lives.items():
        begin, end, gpus = np.array(of, np.int64).T
        made[name] = Steps(np.concatenate((begin, end)), np.concatenate((gpus, -gpus))).means(edges.astype(np.float64))
    return made


def regular(jobs: Iterable[SimJob], days: float, quotas: Mapping[str, int], nodes: int) -> float:
    """The share of a cluster that would be used within quotas, which are in nodes, if no job ever waited."""
    used = (np.minimum(hours, quotas[name] * NODE_GPUS).mean() for name, hours in gpus_without_waits(jobs, days).items())
    return float(sum(used)) / (nodes * NODE_GPUS)


def scale_for(target: float, model: Hived, seed: int, quotas: Mapping[str, int], nodes: int, halvings: int = 8) -> float:
    """The workload's scale at which that share is the target."""

    def share(scale: float) -> float:
        jobs = hived.jobs(model.model_copy(update={"scale": scale}), seed)
        return regular(jobs, model.span_days, quotas, nodes)

    return _search(share, target, 0.1, 10, halvings)


def fit_tenants(seeds: Sequence[int], model: Hived = PAPERS, halvings: int = HALVINGS) -> dict[str, Tenant]:
    """Fit the tenants' loads and swings, which depend on the present ones only by chance."""
    tenants = {name: _fit_tenant(name, TENANTS[name], seeds, model, halvings) for name in TENANTS}
    rest = tenants.pop(REST)
    others = sum(tenant.load * tenant.nodes for tenant in tenants.values())
    return {**tenants, REST: rest._replace(load=(UTILISATION * NODES - others) / rest.nodes)}


def _fit_tenant(name: str, tenant: Tenant, seeds: Sequence[int], model: Hived, halvings: int) -> Tenant:
    alone = model.model_copy(update={"tenants": (name,)})
    balanced = UTILISATION * NODES / OWNED
    days = model.span_days

    def shapes(swing: float) -> list[Shape]:
        tried = tenant._replace(swing=swing)
        of = (gpus_without_waits(hived.jobs(alone, seed, tenants={name: tried}), days)[name] for seed in seeds)
        return [Shape(hours / (tried.load * tried.nodes * NODE_GPUS)) for hours in of]

    def fluctuation(swing: float) -> float:
        return float(np.mean([shape.fluctuation(balanced) for shape in shapes(swing)]))

    swing = _search(fluctuation, BALANCED[name].fluctuation, *SWINGS, halvings)
    found, effective = shapes(swing), DEFAULT[name].effective / 100
    if tenant.nodes <= SMALL:
        return tenant._replace(load=effective, swing=swing)
    load = _search(lambda load: float(np.mean([s.share_used(load) for s in found])), effective, 0.01, 5, 20)
    return tenant._replace(load=load, swing=swing)


def _search(rising: Callable[[float], float], target: float, low: float, high: float, halvings: int) -> float:
    """Find where an increasing function reaches the target; if it never does, return the nearer end."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return (low + high) / 2


if __name__ == "__main__":
    import sys

    for name, tenant in fit_tenants(range(1, 9)).items():
        sys.stdout.write(f"{name}: load {tenant.load:.3f}, swing {tenant.swing:.2f}\n")
