"""The simulations for the tables and figures of HiveD's evaluation, as data: settings, and the cases of each.

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
from scheduler_service.sim.virtual_clusters import Pool, VirtualCluster
from scheduler_service.sim.workloads import Workload, hived

Scheme = Literal["private", "quota", "cells", "static"]
"""Each tenant alone; YARN-CS with quotas of GPUs; cells bound when they are used; cells bound permanently."""
Assignment = Literal["default", "balanced", "levels"]
"""Nodes as in table 1; nodes by demand; cells of every level by demand."""

POOL = "gpu-2x2x2"
LEVELS = {8: "node", 4: "socket", 2: "switch", 1: "device"}
"""The name of each level, by the GPUs of a cell, the largest first."""


class Setting(NamedTuple):
    nodes: int = hived.NODES
    scheme: Scheme = "cells"
    assignment: Assignment = "default"
    exchange: bool = False
    busy: bool = True
    """As busy as section 5.2.2 has it on the days that it shows: regular jobs are to use 70 % of 279 nodes. Else as fitted:
    they use half of them, which is the sum of table 4's utilizations, of the whole trace. The paper gives both without a
    reason; that the days it shows were busier, for all tenants alike, is an assumption."""
    promotes: bool = True
    """Whether runs beyond a quota become guaranteed in place, once there are cells for them. The paper does not mention it."""

    def quotas(self) -> dict[str, int]:
        """Quotas in nodes."""
        return hived.balanced_quotas(self.nodes) if self.assignment == "balanced" else hived.quotas(self.nodes)

    @property
    def private(self) -> "Setting":
        """The setting to compare with."""
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
"""Settings of each table and figure. Figure 6 has other schedulers as well: see `queueing_delay_plan`."""

SHOWN = ("prod-a", "prod-e")
"""The tenants whose delays figure 7 shows."""

BALANCES = ("res-e", "prod-c", "prod-d")
"""The tenants of figure 11: one that gives as much as it takes, one that mostly gives and one that mostly takes. The paper's
text names only the first; the others are assumed."""

ENDS = 4
"""Figure 12 has this many of the tenants that gain the most, and of those that gain the least."""


def levels(asked: Mapping[int, float], gpus: int) -> dict[int, int]:
    """Cells of each level for a tenant with this many GPUs, by its jobs' demand for cells of that level (5.3).

    From the highest level down, each gets its share of what is left, rounded down; the GPU level gets the rest.
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
    """Factor on the demand of all jobs."""
    seed: int = 1
    durations: hived.Durations = "alike"
    """Durations if tenants are as busy as in section 5.2.2. As fitted, durations are by size."""

    def for_setting(self, setting: Setting) -> "Study":
        """The study with the scale and the durations that the setting's jobs have."""
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


def needed_settings(part: str) -> tuple[Setting, ...]:
    """The settings of a part and those to compare with; the comparison for exchange is among its own settings."""
    settings = FIGURES[part]
    if any(setting.exchange for setting in settings):
        return settings
    return tuple(dict.fromkeys((*settings, *(setting.private for setting in settings))))


def cases(setting: Setting, study: Study) -> tuple[Case, ...]:
    """Return one case, or for private clusters a case for each tenant."""
    quotas = setting.quotas()
    study = study.for_setting(setting)
    if setting.scheme == "private":
        return tuple(
            case_of(
                quotas[name], "quota", (tenant(name, POOL, quotas[name]),), study.workload((name,)), study.seed, "guaranteed"
            )
            for name in study.workload().counts()
        )
    if setting.scheme == "static":
        tenants, pools = separate_pools(quotas)
        return (case_of(setting.nodes, "cells", tenants, study.workload(), study.seed, pools=pools),)
    owned = {name: _owned_cells(name, count, setting.assignment == "levels") for name, count in quotas.items()}
    tenants = tuple(_tenant(name, POOL, cells) for name, cells in owned.items())
    policy = "quota" if setting.scheme == "quota" else "cells"
    case = case_of(setting.nodes, policy, tenants, study.workload(), study.seed, promotes=setting.promotes)
    return (case.model_copy(update={"exchange": Exchange()}) if setting.exchange else case,)


def separate_pools(quotas: Mapping[str, int]) -> tuple[tuple[VirtualCluster, ...], tuple[Pool, ...]]:
    """Give each tenant nodes of its own permanently, as a pool with the tenant's name."""
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


def _owned_cells(name: str, nodes: int, multi_level: bool) -> dict[str, int]:
    """The cells that a tenant owns: cells of every level by its jobs' demand, or nodes."""
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
    """A case on nodes of 8 GPUs."""
    return Case(
        cluster=(Nodes(nodes=nodes, gpus=8, tree=(("socket", 2), ("switch", 2))),),
        workload=workload,
        policy=Policy(name=policy, promotes=promotes),
        seed=seed,
        virtual_clusters=tenants,
        pools=pools,
        guarantee=guarantee,  # type: ignore[arg-type]  # pydantic checks it
    )
