"""The measurements of cell exchange in HiveD's evaluation (paper, section 5.4): tables 4 and 5, figures 11 and 12.

Cells are whole nodes here, as in the paper. They have no names, so cells that a tenant gives and takes at the same moment
cancel out. Only the use of more cells than a tenant owns is a gain: the corresponding fraction of its use of all its cells.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from reproduction.hived.measures import NODE_GPUS, Uses, busy, effective, fluctuation, gain, gpus_in_use
from scheduler_service.core.model.values import Micros
from scheduler_service.sim.experiments.history import Floats, Ints, Steps
from scheduler_service.sim.experiments.metrics import HOUR_US


class Windows(NamedTuple):
    """The GPUs that each exchange moved, and when: a row for each exchange."""

    giver: list[str]
    taker: list[str]
    gpus: Ints
    begin: Ints
    end: Ints

    def gpus_of(self, side: list[str], name: str) -> Steps:
        """Return the GPUs of which the tenant is the giver, or the taker, over time."""
        rows = np.array([one == name for one in side], bool)
        begin, end, gpus = self.begin[rows], self.end[rows], self.gpus[rows]
        return Steps(np.concatenate((begin, end)), np.concatenate((gpus, -gpus)))


def windows(exchanges: Any, horizon: Micros) -> Windows:
    """Return the exchanges that were opened; one that is still open ends with the simulation."""
    opened = exchanges.filter(exchanges["opened_us"].is_valid())
    end = opened["returned_us"].fill_null(horizon).to_numpy()
    gpus, begin = (opened[name].to_numpy().astype(np.int64) for name in ("gpus", "opened_us"))
    return Windows(opened["giver"].to_pylist(), opened["taker"].to_pylist(), gpus, begin, end.astype(np.int64))


def read_windows(folder: Path, horizon: Micros) -> Windows:
    """Read the exchanges of a case that a sweep kept in full."""
    return windows(pq.read_table(folder / "exchanges.parquet"), horizon)


class Gained(NamedTuple):
    """The effect of exchange on one tenant. Shares are of the GPUs that it owns."""

    effective: float
    """Use by its regular jobs within what it owns, without exchange."""
    increased: float
    """Their use of cells beyond those that it owns, as far as these are matched by cells that it gave."""
    regular: float
    """All their use with exchange, matched or not."""
    given_h: float
    """GPU-hours of its cells that others had, while it gave more than it took."""
    taken_h: float
    """GPU-hours of others' cells that it had, while it took more than it gave."""
    had_h: float
    """GPU-hours that it used beyond the cells that it owns."""
    fluctuation: float
    """Relative Fluctuation (Eqn 3) of its jobs' use without exchange, regular or not."""

    @property
    def gain(self) -> float:
        return gain(self.increased, self.effective) if self.effective else 0.0


class Use(NamedTuple):
    """The use of GPUs by the tenants' jobs."""

    regular: Uses
    every: Uses
    """Use by all jobs, opportunistic ones included."""
    names: list[str]
    """Names of virtual clusters, indexed by the numbers in the uses."""

    def uses_of(self, name: str) -> tuple[Uses, Uses]:
        code = self.names.index(name) if name in self.names else -1
        return self.regular.select(self.regular.vc == code), self.every.select(self.every.vc == code)


def gain_of_tenant(name: str, own: int, without: Use, exchanged: Use, traded: Windows, begin: Micros, end: Micros) -> Gained:
    """Compare the same jobs without and with exchange, for a tenant that owns `own` GPUs, between two times."""
    before, every = without.uses_of(name)
    regular, _ = exchanged.uses_of(name)
    span = float(end - begin)
    given_us, taken_us = balance(traded.gpus_of(traded.giver, name), traded.gpus_of(traded.taker, name), begin, end)
    had_us = use_beyond_own(regular, own, begin, end)
    return Gained(
        effective(gpus_in_use(before), own, begin, end),
        had_us * matched_share(given_us, taken_us) / (own * span),
        gpus_in_use(regular).mean(begin, end) / own,
        given_us / HOUR_US,
        taken_us / HOUR_US,
        had_us / HOUR_US,
        fluctuation(gpus_in_use(every), own, begin, end),
    )


def matched_share(given: float, taken: float) -> float:
    """The share of what a tenant took that it also gave: our reading of "are matched" (5.4)."""
    return min(1.0, given / taken) if taken else 0.0


def balance(given: Steps, taken: Steps, begin: Micros, end: Micros) -> tuple[float, float]:
    """GPU-microseconds given while more was given than taken, and taken while more was taken than given."""
    at = _moments(begin, end, given.at, taken.at)
    more = (_level(given, at[:-1]) - _level(taken, at[:-1])) * np.diff(at)
    return float(more.clip(0).sum()), float((-more).clip(0).sum())


def use_beyond_own(regular: Uses, own: int, begin: Micros, end: Micros) -> float:
    """GPU-microseconds in which a tenant's regular jobs used more cells than it owns."""
    gpus, nodes = gpus_in_use(regular), busy(regular)
    at = _moments(begin, end, gpus.at, nodes.at)
    cells = _level(nodes, at[:-1])
    share = (cells - own / NODE_GPUS).clip(0) / np.maximum(cells, 1)
    return float((_level(gpus, at[:-1]) * share) @ np.diff(at))


def _moments(begin: Micros, end: Micros, *times: Ints) -> Ints:
    found: Ints = np.unique(np.clip(np.concatenate(([begin, end], *times)), begin, end))
    return found


def _level(steps: Steps, at: Ints) -> Floats:
    """The level from each of these times on."""
    place = np.searchsorted(steps.at, at, side="right") - 1
    levels: Floats = np.where(place >= 0, steps.level[np.clip(place, 0, None)] if len(steps.at) else 0, 0).astype(np.float64)
    return levels


# ---- figure 11 -----------------------------------------------------------------------------------------------------------


class Balance(NamedTuple):
    """GPU-hours up to each of the later edges: those that a tenant gave to others, and those that it had from them."""

    given: Floats
    """Given in exchange: cells, used or not."""
    taken: Floats
    lent: Floats
    """Lent to others' low-priority jobs: idle GPUs have no names, so its share of their use is its share of the idle GPUs."""
    borrowed: Floats
    """Borrowed by its own low-priority jobs."""


def balances(use: Use, owned: Mapping[str, int], gpus: int, traded: Windows, edges: Floats) -> dict[str, Balance]:
    """The balances of tenants that own `owned` of `gpus` GPUs."""
    hours = np.diff(edges) / HOUR_US
    regular, low, given, taken = {}, {}, {}, {}
    for name in owned:
        mine, every = use.uses_of(name)
        regular[name] = gpus_in_use(mine).means(edges)
        low[name] = gpus_in_use(every).means(edges) - regular[name]
        given[name], taken[name] = (traded.gpus_of(side, name).means(edges) for side in (traded.giver, traded.taker))
    idle = np.maximum(gpus - sum(regular.values()), 1)
    total = sum(low.values())
    return {
        name: Balance(
            *(
                np.cumsum(level * hours)
                for level in (
                    given[name],
                    taken[name],
                    total * np.clip(own - given[name] + taken[name] - regular[name], 0, None) / idle,
                    low[name],
                )
            )
        )
        for name, own in owned.items()
    }
