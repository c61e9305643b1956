"""The speed of a simulated job by its placement and neighbors: the interface of a model of rates, and Gandiva's."""

from collections.abc import Iterable, Mapping, Sequence
from math import log2
from typing import NamedTuple, Protocol

from scheduler_service.sim.sharing.kinds import GANDIVA, MILLION, ON_A_SWITCH, Kind, Spread, demand_when_packed

BILLION = 1_000_000_000
"""Rates are whole billionths of the rate alone, so that the same simulation gives the same times on every machine."""


class Site(NamedTuple):
    """The placement of the tasks of a launch."""

    model: str
    """The model of their devices."""
    devices: int
    """The number of devices of all tasks."""
    spread: Spread


class Rates(Protocol):
    """A model of rates. Each answer is in billionths."""

    @property
    def interferes(self) -> bool:
        """Whether jobs on other devices of the same node matter."""
        ...

    def kind(self, name: str, devices: int, /) -> Kind | None:
        """The kind of jobs that were submitted with this many devices; None if it is unknown."""
        ...

    def rate_alone(self, name: str, devices: int, site: Site, /) -> int:
        """The rate of a job that was submitted with this many devices and has its present ones alone, relative to its rate on
        as many reference devices next to each other."""
        ...

    def rate_packed(self, name: str, others: Sequence[str], site: Site, /) -> int:
        """The remaining part of its rate if these others execute on the same device; `site`: the placement of the job."""
        ...

    def rate_beside(self, name: str, neighbours: Iterable[tuple[str, int]], networked: Iterable[int], /) -> int:
        """The remaining part of its rate next to jobs on other devices of its nodes. `neighbours`: the kind of each and the
        part of the time in which it executes; `networked`: if it is on several nodes, that part of each job that shares its
        network."""
        ...


class Proportional:
    """Packed jobs slow each other down in proportion to their demand on the device; by default no kind is known, so each of n
    packed jobs has 1/n of its rate.

    The rate of n jobs of one kind of Table 1 together is n times that of one until it reaches the packed rate of the table. The
    paper has no number for different kinds. Here each asks for `demand_when_packed` of the device; if the sum is more than 1,
    rates are divided by it.
    """

    def __init__(self, kinds: Mapping[str, Kind] | None = None, interference: bool = False) -> None:
        self._kinds = kinds or {}
        self._demanded = {name: demand_when_packed(kind) for name, kind in self._kinds.items()}
        self.interferes = interference

    def kind(self, name: str, _devices: int) -> Kind | None:
        return self._kinds.get(name)

    def rate_alone(self, name: str, devices: int, site: Site) -> int:
        kind = self._kinds.get(name)
        if kind is None:
            return BILLION
        rate = BILLION * kind.spread[site.spread] // MILLION
        if site.devices == devices or not devices:
            return rate
        more = site.devices / devices
        return round(rate * more * (kind.scaling / MILLION) ** log2(more)) if more > 1 else round(rate * more)

    def rate_packed(self, name: str, others: Sequence[str], _site: Site) -> int:
        if not others:
            return BILLION
        asked = sum(self._demanded.get(other, 1.0) for other in (name, *others))
        return BILLION if asked <= 1 else round(BILLION / asked)

    def rate_beside(self, name: str, neighbours: Iterable[tuple[str, int]], networked: Iterable[int]) -> int:
        rate, kind = float(BILLION), self._kinds.get(name)
        for other, share in neighbours:
            rate *= 1 - ON_A_SWITCH.get((name, other), 0) * share / (MILLION * BILLION)
        if kind is not None and kind.network:
            busiest = max(networked, default=0)
            rate *= 1 - kind.network * busiest / (MILLION * BILLION)
        return round(rate)


def gandiva(interference: bool = True) -> Proportional:
    return Proportional(GANDIVA, interference)
