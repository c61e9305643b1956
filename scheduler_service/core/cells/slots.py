"""What is set for each slot of a pool. All else that a pool tells follows from it."""

from collections import defaultdict
from typing import NamedTuple

from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask


class Unit(NamedTuple):
    """A bound cell inside a node, or what lies on one node of a larger one."""

    available: int
    """How many leaves of it are available; in order of this, then of the address."""
    slot: int
    mask: Mask
    """All its positions."""


class Slot:
    """A node's leaves, by what is true of them. They are in one place, because a request asks for nearly all of it, and of a
    node that nobody has looked at for long: in a large cluster it takes more time to fetch it than to compute with it."""

    __slots__ = ("bound", "guaranteed", "healthy", "listed", "open", "opportunistic", "units")

    def __init__(self) -> None:
        self.healthy: Mask = 0
        self.bound: Mask = 0
        """Under a binding of any level."""
        self.guaranteed: Mask = 0
        self.opportunistic: Mask = 0
        self.open: Mask = 0
        """As the free lists have them."""
        self.units: dict[Mask, Owner] = _NO_UNITS
        """All leaves of each -> whose it is."""
        self.listed: list[tuple[Owner, Unit]] = _UNLISTED
        """The same of those of which something is available, as the lists of units have them."""

    def idle(self) -> Mask:
        return self.healthy & ~(self.guaranteed | self.opportunistic)


Facts = defaultdict[int, Slot]
"""By slot. One of which nothing is known yet is like one that is not there."""

_NO_UNITS: dict[Mask, Owner] = {}
_UNLISTED: list[tuple[Owner, Unit]] = []
"""What is without any has these. Nobody writes to them."""
