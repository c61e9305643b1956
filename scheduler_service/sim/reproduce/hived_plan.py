"""Which simulations the tables and figures of HiveD's evaluation take, as data.

A setting is one simulated cluster: how large, how it is shared, and which cells the tenants own. Settings that several figures
share are simulated once.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from scheduler_service.sim.reproduce.hived_published import LOADED_NODES
from scheduler_service.sim.workloads import hived

Scheme = Literal["private", "quota", "cells", "static"]
"""Each tenant alone; YARN-CS by quotas of GPUs; cells bound when they are used; cells bound once and for all."""
Assignment = Literal["default", "balanced", "levels"]
"""Nodes by table 1; nodes by what is asked for; cells of every level by what is asked for."""

LEVELS = (8, 4, 2, 1)
"""GPUs of a cell of each level: node, socket, PCIe switch, GPU."""


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
"""Figure 6 is of a 96-GPU cluster and ten days of the trace, under three policies: see `SAMPLED_NODES`."""

SAMPLED_NODES, SAMPLED_DAYS = 12, 10
"""Of figure 6: 24 machines of 4 GPUs, two of which count as a node. The paper sampled the trace to that size."""

SHOWN = ("prod-a", "prod-e")
"""The tenants whose delays figure 7 has."""

BALANCES = ("res-e", "prod-c", "prod-d")
"""The tenants of figure 11: one that gives as much as it takes, and two that do one of both too much. The paper's text names
the first alone; the others are assumed."""

ENDS = 4
"""Figure 12 has so many tenants that gain the most, and so many that gain the least."""


def sampled() -> hived.Hived:
    """Figure 6's workload: a sample of jobs that ask for as much of 12 nodes in ten days as all do of 279."""
    jobs = round(hived.JOBS * SAMPLED_DAYS / hived.DAYS * SAMPLED_NODES / hived.NODES)
    return hived.Hived(jobs=jobs, days=SAMPLED_DAYS, scale=SAMPLED_NODES / hived.NODES)


def levels(asked: Mapping[int, float], gpus: int) -> dict[int, int]:
    """Cells of each level for a tenant of so many GPUs, by how much its jobs ask for in cells of that level (5.3).

    From the highest level down each is given its part of what is left, rounded down; the GPU level has the rest.
    """
    left, cells = gpus, dict.fromkeys(LEVELS, 0)
    for place, level in enumerate(LEVELS):
        of_rest = sum(asked.get(lower, 0) for lower in LEVELS[place:])
        if of_rest:
            cells[level] = int(left * asked.get(level, 0) / of_rest + 1e-9) // level
            left -= cells[level] * level
    cells[LEVELS[-1]] += left
    return cells
