"""How fast a simulated job runs where it is, beside whom: what a model of rates answers, and the model of the Gandiva paper."""

from collections.abc import Iterable, Mapping, Sequence
from math import log2
from typing import NamedTuple, Protocol

from scheduler_service.sim.sharing.kinds import GANDIVA, MILLION, ON_A_SWITCH, Kind, Spread, demanded

BILLION = 1_000_000_000
"""Rates are whole billionths of the rate alone, so that the same simulation gives the same times on every machine."""


class Site(NamedTuple):
    """Where the tasks of a launch are."""

    model: str
    """Of their devices."""
    devices: int
    """Of all tasks."""
    spread: Spread


class Rates(Protocol):
    """A model of rates. Each answer is in billionths."""

    @property
    def interferes(self) -> bool:
        """Whether jobs on other devices of the same node matter."""
        ...

    def kind(self, name: str, devices: int, /) -> Kind | None:
        """Of jobs that were submitted with so many devices. None: nothing is known of such jobs."""
        ...

    def alone(self, name: str, devices: int, site: Site, /) -> int:
        """The rate of a job that was submitted with so many devices and has its present ones alone, by its rate on the
        reference device, with the devices that it was submitted with, next to each other."""
        ...

    def packed(self, name: str, others: Sequence[str], site: Site, /) -> int:
        """The part of its rate that is left if these others execute on the same device; `site`: where the job is."""
        ...

    def beside(self, name: str, neighbours: Iterable[tuple[str, int]], networked: Iterable[int], /) -> int:
        """The part of its rate that is left beside jobs on other devices of its nodes: of each its kind and the part of the
        time in which it executes; and, if the job is on several nodes, that part of each job with which it shares a
        network."""
        ...


class Proportional:
    """Packed jobs slow each other down in proportion to what they ask of the device; by default nothing is known of any job, so
    each of n packed jobs has one n-th of its rate.

    The rate of n jobs of one kind of Table 1 together is n times that of one until it reaches the packed rate of the table. Of
    different kinds the paper has no figure. Here each asks for `demanded` of the device, and if that is more than 1 in all,
    each has its own rate divided by it.
    """

    def __init__(self, kinds: Mapping[str, Kind] | None = None, interference: bool = False) -> None:
        self._kinds = kinds or {}
        self._demanded = {name: demanded(kind) for name, kind in self._kinds.items()}
        self.interferes = interference

    def kind(self, name: str, _devices: int) -> Kind | None:
        return self._kinds.get(name)

    def alone(self, name: str, devices: int, site: Site) -> int:
        kind = self._kinds.get(name)
        if kind is None:
            return BILLION
        rate = BILLION * kind.spread[site.spread] // MILLION
        if site.devices == devices or not devices:
            return rate
        more = site.devices / devices
        return round(rate * more * (kind.scaling / MILLION) ** log2(more)) if more > 1 else round(rate * more)

    def packed(self, name: str, others: Sequence[str], _site: Site) -> int:
        if not others:
            return BILLION
        asked = sum(self._demanded.get(other, 1.0) for other in (name, *others))
        return BILLION if asked <= 1 else round(BILLION / asked)

    def beside(self, name: str, neighbours: Iterable[tuple[str, int]], networked: Iterable[int]) -> int:
        rate, kind = float(BILLION), self._kinds.get(name)
        for other, share in neighbours:
            rate *= 1 - ON_A_SWITCH.get((name, other), 0) * share / (MILLION * BILLION)
        if kind is not None and kind.network:
            busiest = max(networked, default=0)
            rate *= 1 - kind.network * busiest / (MILLION * BILLION)
        return round(rate)


def gandiva(interference: bool = True) -> Proportional:
    return Proportional(GANDIVA, interference)
