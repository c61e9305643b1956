"""A setting of HiveD's evaluation, simulated: what its tables and figures are made of."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from scheduler_service.sim.cases import Case
from scheduler_service.sim.history import Floats, History
from scheduler_service.sim.reproduce import hived_exchange, hived_measures
from scheduler_service.sim.reproduce.hived_private import joined, kept
from scheduler_service.sim.reproduce.studies import Simulated

DAY_US = 86_400_000_000
POINTS = 240
"""Of a curve."""


class Seen(NamedTuple):
    """A setting, simulated."""

    history: History
    jobs: Any
    runs: Any
    nodes: int
    uses: hived_measures.Uses
    delays: Any
    traded: hived_exchange.Windows | None
    """None: no cells were exchanged in it."""

    def edges(self, step: int = POINTS) -> Floats:
        """From the first submit to the last one, in so many steps."""
        return np.linspace(float(self.history.submit.min()), float(self.history.submit.max()), step + 1)

    def use(self) -> hived_exchange.Use:
        return hived_exchange.Use(self.uses, hived_measures.all_uses(self.history, self.runs), self.history.vcs[1])


def see(of: Iterable[Case], found: Simulated) -> Seen:
    """Several cases are clusters that stand for one."""
    cases = list(of)
    folders = [found[case].folder for case in cases]
    nodes = [sum(group.nodes for group in case.cluster) for case in cases]
    jobs, runs = joined([kept(one) for one in folders], nodes)
    history = hived_measures.history_of((jobs, runs), sum(nodes))
    traded = hived_exchange.kept(folders[0], history.horizon) if cases[0].exchanges_cells else None
    delays = hived_measures.delays(history, jobs)
    return Seen(history, jobs, runs, sum(nodes), hived_measures.uses(history, runs), delays, traded)


def days(edges: Floats) -> list[float]:
    """Each later edge, from the first one on."""
    found: list[float] = ((edges[1:] - edges[0]) / DAY_US).tolist()
    return found
