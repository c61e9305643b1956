"""The simulations of HiveD's figure 6, as data: three schedulers, each in three ways, on samples of the jobs.

The paper's cluster is 24 machines of four K80s, two of which count as a node. Its 12 nodes are too few for eleven tenants, so
the small ones are left out (`hived.sampled_quotas`). A sample has about eight jobs of prod-a, the tenant of the figure, and
says little by itself: several are used.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple, get_args

from reproduction.hived.plan import POOL, Setting, Study
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.sharing.config import Sharing
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.virtual_clusters import VirtualCluster
from scheduler_service.sim.workloads import Hived, hived

Way = Literal["private", "shared", "cells"]
WAYS: tuple[Way, ...] = get_args(Way)
"""Each tenant alone, all in one cluster, and each in its virtual cluster."""
Settings = tuple[tuple[str, float], ...]

SAMPLES = 5
NODES, DAYS = 12, 10.0
MACHINE_CPUS, MACHINE_GIB, K80_GIB = 24, 224, 12
"""A machine with four K80s in the cloud that the paper's authors work for (Azure NC24): an assumption."""


class Scheduler(NamedTuple):
    title: str
    alone: str
    """The policy of a cluster of one tenant."""
    inside: str
    """The policy of a virtual cluster."""
    by_quota: bool = True
    """Whether tenants that share a cluster have quotas there. Tiresias has none (footnote 2)."""
    settings: Settings = ()


EVERY = 1800.0
"""Seconds between two looks at a server, and between measurements. With the usual minute each of these simulations would take
many times as long, and jobs run for hours and days."""
GANDIVA: Settings = (("growth", 0.0), ("period", EVERY))
SCHEDULERS: Mapping[str, Scheduler] = {
    "yarn": Scheduler("YARN-CS", "quota", "fifo"),
    "gandiva": Scheduler("Gandiva", "gandiva", "gandiva", settings=GANDIVA),
    "no-turns": Scheduler("Gandiva, nobody takes turns", "gandiva", "gandiva", settings=(*GANDIVA, ("oversubscription", 1.0))),
    "tiresias": Scheduler("Tiresias", "las", "las", by_quota=False),
}
"""Under Gandiva jobs take turns rather than wait, but the paper's wait for hours. So it is simulated in both ways."""


@cache
def workload(study: Study, seed: int) -> Hived:
    """The jobs of the first ten days, or of the requested share of the two months. They are as busy as in figures 7 to 10,
    because the sample is of those jobs."""
    days = min(DAYS, hived.DAYS * study.share)
    settled = study._replace(share=days / hived.DAYS, seed=seed).for_setting(Setting())
    return settled.workload().model_copy(update={"nodes": NODES, "models": True})


def cases(scheduler: Scheduler, way: Way, jobs: Hived, seed: int) -> tuple[Case, ...]:
    """Cases of one sample: one case, or for private clusters a case for each tenant."""
    quotas = hived.sampled_quotas(NODES)
    if way == "private":
        return tuple(_private(scheduler, name, nodes, jobs, seed) for name, nodes in quotas.items())
    tenants = tuple(_tenant(scheduler, name, nodes) for name, nodes in quotas.items())
    if way == "cells":
        return (_case(NODES, Policy(name="cells"), tenants, jobs, seed),)
    if scheduler.by_quota:
        return (_case(NODES, Policy(name="quota"), tenants, jobs, seed),)
    return (_case(NODES, _policy_alone(scheduler), (), jobs, seed),)


def _private(scheduler: Scheduler, name: str, nodes: int, jobs: Hived, seed: int) -> Case:
    own = jobs.model_copy(update={"tenants": (name,)})
    if scheduler.alone != "quota":
        return _case(nodes, _policy_alone(scheduler), (), own, seed)
    case = _case(nodes, Policy(name="quota"), (_tenant(scheduler, name, nodes),), own, seed)
    return case.model_copy(update={"guarantee": "guaranteed"})


def _policy_alone(scheduler: Scheduler) -> Policy:
    return Policy(name=scheduler.alone, settings=scheduler.settings)


def _tenant(scheduler: Scheduler, name: str, nodes: int) -> VirtualCluster:
    owned = ((POOL, (("node", nodes),)),)
    return VirtualCluster(name=name, owns=owned, policy=scheduler.inside, settings=scheduler.settings)


def _case(nodes: int, policy: Policy, tenants: tuple[VirtualCluster, ...], jobs: Hived, seed: int) -> Case:
    """All schedulers have the same GPUs: only under Gandiva do jobs lose time by moves and by sharing GPUs."""
    node = Nodes(
        nodes=nodes,
        cpus=2 * MACHINE_CPUS,
        memory_gib=2 * MACHINE_GIB,
        gpus=8,
        gpu_memory_gib=K80_GIB,
        tree=(("socket", 2), ("switch", 2)),
    )
    return Case(
        cluster=(node,),
        workload=jobs,
        policy=policy,
        virtual_clusters=tenants,
        sharing=Sharing(interference=False, measure_every=EVERY),
        seed=seed,
    )
