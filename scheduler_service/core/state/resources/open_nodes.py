"""Capacities of open nodes if nothing ran on them: they show on which open nodes a job could ever run.

A node is open if it is up and not drained. A faulty device does not count until it is healthy again. Jobs that no open node
could take wait outside their queue (`Reason.NODES_CLOSED`), and a job that waits for room blocks others only on nodes that
could take it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import Node, NodeState
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.resources.node_bits import bits_of
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.core.state.resources.suitable_nodes import Suitable

_CLOSED = (-1, -1, -1)
_KNOWN = 1024
"""Number of answers to keep, since users may ask for any number of different amounts."""


class Seats(NamedTuple):
    """The nodes that have room for a task when they are empty."""

    bits: int
    """Bit i is node i."""
    most: int
    """The number of such tasks that fit on the node with room for the most."""


class OpenNodes:
    """The capacity of each node that is open, less its faulty devices."""

    __slots__ = ("_all", "_seats", "_together", "_whole", "changes", "count")

    def __init__(self) -> None:
        self.changes = 0
        """Number of times that a node has opened or closed, or that its capacity has changed."""
        self.count = 0
        """The highest ID that a node has had."""
        self._whole: NDArray[np.int64] = np.full((3, 8), -1, dtype=np.int64)
        self._seats: dict[tuple[Vector, int], Seats] = {}
        self._together: dict[tuple[tuple[Vector, ...], int], bool] = {}
        self._all: bool | None = None
        """Whether any node is open; None: unknown since nodes changed."""

    def set_node(self, node: int, row: Node | None, faulty: int) -> bool:
        """Sets a node's row and how many of its devices are faulty. Returns whether anything changed."""
        self.count = max(self.count, node)
        if node >= self._whole.shape[1]:
            wider = np.full((3, 2 * node), -1, dtype=np.int64)
            wider[:, : self._whole.shape[1]] = self._whole
            self._whole = wider
        whole = _CLOSED
        if row is not None and row.state is NodeState.UP and row.drained_us is None:
            cpu, memory, devices = row.capacity
            whole = cpu, memory, devices - faulty
        if tuple(self._whole[:, node].tolist()) == whole:
            return False
        self._whole[:, node] = whole
        self.forget()
        return True

    def forget(self) -> None:
        """Drops all answers: a node, or what jobs may require of it, has changed."""
        self.changes += 1
        self._seats.clear()
        self._together.clear()
        self._all = None

    def any(self) -> bool:
        """Whether any node is open."""
        if self._all is None:
            self._all = bool((self._whole[0, : self.count + 1] >= 0).any())
        return self._all

    def seats(self, need: Vector, among: Suitable | None = None) -> Seats:
        """Return the open nodes, `among` these, that could take a task with this need if they were empty."""
        asked = need, -1 if among is None else among.bits
        known = self._seats.get(asked)
        if known is None:
            if len(self._seats) == _KNOWN:
                self._seats.clear()
            known = self._seats[asked] = self._find(need, among)
        return known

    def _find(self, need: Vector, among: Suitable | None) -> Seats:
        whole = self._offered_resources(among)
        most = np.where(whole[0] >= 0, np.iinfo(np.int64).max, 0)
        for want, have in zip(need, whole, strict=True):
            if want:
                np.minimum(most, have // want, out=most)
        most[0] = 0
        most = most.clip(0)
        return Seats(bits_of(most > 0), int(most.max()))

    def could_fit_all(self, needs: Sequence[Vector], among: Suitable | None = None) -> bool:
        """Whether all of these needs would fit together if every open node were empty."""
        asked = tuple(needs), -1 if among is None else among.bits
        known = self._together.get(asked)
        if known is None:
            if len(self._together) == _KNOWN:
                self._together.clear()
            known = self._together[asked] = pack(needs, self._offered_resources(among).copy()) is not None
        return known

    def _offered_resources(self, among: Suitable | None) -> NDArray[np.int64]:
        whole = self._whole[:, : self.count + 1]
        return whole if among is None else np.where(among.mask, whole, -1)

    def capacity(self, node: int) -> Vector:
        """Return the node's capacity, or negative amounts if it is not open."""
        return Vector(*self._whole[:, node].tolist())

    def snapshot(self) -> dict[int, tuple[int, ...]]:
        """Return the capacities of open nodes."""
        whole = self._whole[:, : self.count + 1]
        return {int(node): tuple(whole[:, node].tolist()) for node in np.nonzero(whole[0] >= 0)[0]}
