"""Facts that are set for each slot of a pool. All else that a pool knows follows from them."""

from collections import defaultdict
from typing import NamedTuple

from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask


class Unit(NamedTuple):
    """A bound cell inside a node, or the part of a larger one on one node."""

    available: int
    """How many leaves of it are available. Units are ordered by this, then by address."""
    slot: int
    mask: Mask
    """All its positions."""


class Slot:
    """The leaves of a node, by what is true of them. They are in one place, because a request asks for nearly all of it, and of
    a node that has not been read for a while: in a large cluster, fetching it takes more time than computing with it."""

    __slots__ = ("bound", "guaranteed", "healthy", "listed", "open", "opportunistic", "units")

    def __init__(self) -> None:
        self.healthy: Mask = 0
        self.bound: Mask = 0
        """Leaves under a binding of any level."""
        self.guaranteed: Mask = 0
        self.opportunistic: Mask = 0
        self.open: Mask = 0
        """Open leaves, as in the free lists."""
        self.units: dict[Mask, Owner] = _NO_UNITS
        """Leaves of each unit -> its owner."""
        self.listed: list[tuple[Owner, Unit]] = _UNLISTED
        """Units with available leaves, as in the lists of units."""

    def idle_leaves(self) -> Mask:
        return self.healthy & ~(self.guaranteed | self.opportunistic)


Facts = defaultdict[int, Slot]
"""Facts by slot. A slot of which nothing is known yet is like one that does not exist."""

_NO_UNITS: dict[Mask, Owner] = {}
_UNLISTED: list[tuple[Owner, Unit]] = []
"""Slots without units have these. Nothing is ever written to them."""
