"""Which simulations the tables and figures of HiveD's evaluation take, as data: settings, and the cases of each.

A setting is one simulated cluster: how large, how it is shared, and which cells the tenants own. Settings that several figures
share are simulated once.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, NamedTuple

from reproduction.hived.fit import scale_for
from reproduction.hived.published import LOADED_NODES, UTILISATION
from scheduler_service.sim.exchange import Exchange
from scheduler_service.sim.experiments.cases import Case
from scheduler_service.sim.site import Nodes, Policy
from scheduler_service.sim.tenants import Pool, VirtualCluster
from scheduler_service.sim.workloads import Workload, hived

Scheme = Literal["private", "quota", "cells", "static"]
"""Each tenant alone; YARN-CS by quotas of GPUs; cells bound when they are used; cells bound once and for all."""
Assignment = Literal["default", "balanced", "levels"]
"""Nodes by table 1; nodes by what is asked for; cells of every level by what is asked for."""

POOL = "gpu-2x2x2"
LEVELS = {8: "node", 4: "socket", 2: "switch", 1: "device"}
"""By the GPUs of a cell, the largest first."""


class Setting(NamedTuple):
    nodes: int = hived.NODES
    scheme: Scheme = "cells"
    assignment: Assignment = "default"
    exchange: bool = False
    busy: bool = True
    """As section 5.2.2 has it in the days that it shows: regular jobs are to use 70 % of 279 nodes. Else as fitted, with which
    they use half of them, which is what table 4's utilisations, of the whole trace, add up to. The paper gives both and no
    reason; that the days it shows were busier, of all tenants alike, is an assumption."""
    promotes: bool = True
    """What runs beyond a quota becomes guaranteed where it is, once there are cells for it. The paper has nothing of that."""

    def quotas(self) -> dict[str, int]:
        """In nodes."""
        return hived.balanced(self.nodes) if self.assignment == "balanced" else hived.quotas(self.nodes)

    @property
    def private(self) -> "Setting":
        """What it is measured against."""
        return Setting(self.nodes, "private", busy=self.busy)


def as_fitted(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    return tuple(setting._replace(busy=False) for setting in settings)


SHARED = tuple(Setting(scheme=scheme) for scheme in ("private", "quota", "cells"))

_OWN, _BALANCED = Setting(busy=False), Setting(assignment="balanced", busy=False)
_BINDINGS = (Setting(), Setting(scheme="static"))
_LEVELS = tuple(Setting(assignment=assignment, promotes=False) for assignment in ("levels", "default"))

FIGURES: dict[str, tuple[Setting, ...]] = {
    "figure-7a": SHARED,
    "figure-7b": tuple(setting._replace(nodes=LOADED_NODES) for setting in SHARED),
    "figure-8": (*_BINDINGS, *as_fitted(_BINDINGS)),
    "figure-9": (*_LEVELS, *as_fitted(_LEVELS), Setting(assignment="levels"), Setting()),
    "figure-10": (Setting(scheme="quota"), Setting()),
    "figure-11": (_OWN._replace(exchange=True),),
    "table-4": (_OWN, _OWN._replace(exchange=True)),
    "table-5": (_BALANCED, _BALANCED._replace(exchange=True)),
    "figure-12": (_BALANCED, _BALANCED._replace(exchange=True)),
}
"""Figure 6 is of other schedulers as well: see `hived_schedulers_plan`."""

SHOWN = ("prod-a", "prod-e")
"""The tenants whose delays figure 7 has."""

BALANCES = ("res-e", "prod-c", "prod-d")
"""The tenants of figure 11: one that gives as much as it takes, and two that do one of both too much. The paper's text names
the first alone; the others are assumed."""

ENDS = 4
"""Figure 12 has so many tenants that gain the most, and so many that gain the least."""


def levels(asked: Mapping[int, float], gpus: int) -> dict[int, int]:
    """Cells of each level for a tenant of so many GPUs, by how much its jobs ask for in cells of that level (5.3).

    From the highest level down each is given its part of what is left, rounded down; the GPU level has the rest.
    """
    left, cells = gpus, dict.fromkeys(LEVELS, 0)
    for level in LEVELS:
        of_rest = sum(asked.get(lower, 0) for lower in LEVELS if lower <= level)
        if of_rest:
            cells[level] = int(left * asked.get(level, 0) / of_rest + 1e-9) // level
            left -= cells[level] * level
    cells[1] += left
    return cells


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
