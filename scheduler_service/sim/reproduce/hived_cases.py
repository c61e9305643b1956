"""HiveD's settings as cases: who owns what of the simulated cluster, and how it is shared."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from scheduler_service.sim.cases import Case
from scheduler_service.sim.exchange import Exchange
from scheduler_service.sim.reproduce.hived_fit import scale_for
from scheduler_service.sim.reproduce.hived_plan import FIGURES, Setting, levels
from scheduler_service.sim.reproduce.hived_published import UTILISATION
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.tenants import Pool, VirtualCluster
from scheduler_service.sim.workloads import Workload, hived

POOL = "gpu-2x2x2"
LEVELS = {8: "node", 4: "socket", 2: "switch", 1: "device"}


class Study(NamedTuple):
    share: float = 1.0
    scale: float = 1.0
    """Of what all jobs ask for."""
    seed: int = 1
    durations: hived.Durations = "alike"
    """Where tenants are as busy as section 5.2.2 has them. Where they are as fitted it is by size."""

    def settled(self, setting: Setting) -> "Study":
        """With the scale and the durations that the setting's jobs have."""
        if not setting.busy:
            return self._replace(durations="by_size")
        return self._replace(scale=self.scale * _busy_scale(self._replace(scale=1.0)))

    def workload(self, tenants: tuple[str, ...] = ()) -> hived.Hived:
        jobs, days = round(hived.JOBS * self.share), hived.DAYS * self.share
        some = {"tenants": tenants} if tenants else {}
        told = {"jobs": jobs, "days": days, "scale": self.scale, "durations": self.durations}
        return hived.Hived.model_validate(told | some)


@cache
def _busy_scale(study: Study) -> float:
    return scale_for(UTILISATION, study.workload(), study.seed, hived.quotas(), hived.NODES)


def needed(part: str) -> tuple[Setting, ...]:
    """What a part is made of, and what it is measured against: of exchange that is among its settings."""
    settings = FIGURES[part]
    if any(setting.exchange for setting in settings):
        return settings
    return tuple(dict.fromkeys((*settings, *(setting.private for setting in settings))))


def cases(setting: Setting, study: Study) -> tuple[Case, ...]:
    """One, or of private clusters one for each tenant."""
    quotas = setting.quotas()
    study = study.settled(setting)
    if setting.scheme == "private":
        return tuple(
            case_of(
                quotas[name], "quota", (tenant(name, POOL, quotas[name]),), study.workload((name,)), study.seed, "guaranteed"
            )
            for name in study.workload().counts()
        )
    if setting.scheme == "static":
        tenants, pools = apart(quotas)
        return (case_of(setting.nodes, "cells", tenants, study.workload(), study.seed, pools=pools),)
    owned = {name: _owned(name, count, setting.assignment == "levels") for name, count in quotas.items()}
    tenants = tuple(_tenant(name, POOL, cells) for name, cells in owned.items())
    policy = "quota" if setting.scheme == "quota" else "cells"
    case = case_of(setting.nodes, policy, tenants, study.workload(), study.seed, promotes=setting.promotes)
    return (case.model_copy(update={"exchange": Exchange()}) if setting.exchange else case,)


def apart(quotas: Mapping[str, int]) -> tuple[tuple[VirtualCluster, ...], tuple[Pool, ...]]:
    """The tenants with nodes of their own for good: each has a pool, which is called as it is."""
    tenants, pools, first = [], [], 1
    for name, count in quotas.items():
        tenants.append(tenant(name, name, count))
        pools.append(Pool(name=name, first=first, last=first + count - 1))
        first += count
    return tuple(tenants), tuple(pools)


def tenant(name: str, pool: str, nodes: int) -> VirtualCluster:
    return _tenant(name, pool, {"node": nodes})


def _tenant(name: str, pool: str, cells: Mapping[str, int]) -> VirtualCluster:
    return VirtualCluster(name=name, owns=((pool, tuple(cells.items())),))


def _owned(name: str, nodes: int, multi_level: bool) -> dict[str, int]:
    """In cells of every level by what its jobs ask for, or in nodes."""
    if not multi_level:
        return {"node": nodes}
    asked: dict[int, float] = {}
    for gpus, count in zip(hived.SIZES, hived.TENANTS[name].jobs, strict=True):
        asked[min(gpus, 8)] = asked.get(min(gpus, 8), 0) + gpus * count
    return {LEVELS[level]: count for level, count in levels(asked, nodes * 8).items() if count}


def case_of(
    nodes: int,
    policy: str,
    tenants: tuple[VirtualCluster, ...],
    workload: Workload,
    seed: int,
    guarantee: str = "overflow",
    pools: tuple[Pool, ...] = (),
    promotes: bool = True,
) -> Case:
    """On nodes of 8 GPUs."""
    return Case(
        cluster=(Nodes(nodes=nodes, gpus=8, tree=(("socket", 2), ("switch", 2))),),
        workload=workload,
        policy=Policy(name=policy, promotes=promotes),
        seed=seed,
        virtual_clusters=tenants,
        pools=pools,
        guarantee=guarantee,  # type: ignore[arg-type]  # pydantic checks it
    )
