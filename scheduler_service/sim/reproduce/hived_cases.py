"""HiveD's settings as cases: who owns what of the simulated cluster, and how it is shared."""

from collections.abc import Mapping
from typing import NamedTuple

from scheduler_service.sim.cases import Case
from scheduler_service.sim.exchange import Exchange
from scheduler_service.sim.reproduce.hived_plan import FIGURES, Setting, levels
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.tenants import Pool, VirtualCluster
from scheduler_service.sim.workloads import hived

POOL = "gpu-2x2x2"
LEVELS = {8: "node", 4: "socket", 2: "switch", 1: "device"}


class Study(NamedTuple):
    share: float = 1.0
    scale: float = 1.0
    seed: int = 1

    def workload(self, tenants: tuple[str, ...] = ()) -> hived.Hived:
        jobs, days = round(hived.JOBS * self.share), hived.DAYS * self.share
        some = {"tenants": tenants} if tenants else {}
        return hived.Hived.model_validate({"jobs": jobs, "days": days, "scale": self.scale, **some})


def needed(part: str) -> tuple[Setting, ...]:
    """What a part is made of, and what it is measured against: of exchange that is among its settings."""
    settings = FIGURES[part]
    if any(setting.exchange for setting in settings):
        return settings
    return (*settings, Setting(settings[0].nodes, "private"))


def cases(setting: Setting, study: Study) -> tuple[Case, ...]:
    """One, or of private clusters one for each tenant."""
    quotas = setting.quotas()
    if setting.scheme == "private":
        return tuple(
            _case(quotas[name], "quota", (_tenant(name, POOL, {"node": quotas[name]}),), study, (name,), "guaranteed")
            for name in study.workload().counts()
        )
    if setting.scheme == "static":
        tenants, pools, first = [], [], 1
        for name, count in quotas.items():
            tenants.append(_tenant(name, name, {"node": count}))
            pools.append(Pool(name=name, first=first, last=first + count - 1))
            first += count
        return (_case(setting.nodes, "cells", tuple(tenants), study, pools=tuple(pools)),)
    owned = {name: _owned(name, count, setting.assignment == "levels") for name, count in quotas.items()}
    tenants_of = tuple(_tenant(name, POOL, cells) for name, cells in owned.items())
    case = _case(setting.nodes, "quota" if setting.scheme == "quota" else "cells", tenants_of, study)
    return (case.model_copy(update={"exchange": Exchange()}) if setting.exchange else case,)


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


def _case(
    nodes: int,
    policy: str,
    tenants: tuple[VirtualCluster, ...],
    study: Study,
    of: tuple[str, ...] = (),
    guarantee: str = "overflow",
    pools: tuple[Pool, ...] = (),
) -> Case:
    return Case(
        cluster=(Nodes(nodes=nodes, gpus=8, tree=(("socket", 2), ("switch", 2))),),
        workload=study.workload(of),
        policy=Policy(name=policy),
        seed=study.seed,
        virtual_clusters=tenants,
        pools=pools,
        guarantee=guarantee,  # type: ignore[arg-type]  # pydantic checks it
    )
