"""Capacities of nodes, and what could ever fit there."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model.values import ZERO, Vector, fits
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.core.state.resources.suitable_nodes import Suitable

_NONE = -1
_KNOWN = 1024
"""Number of answers of `could_ever_fit_all` to keep: each new kind of gang that users submit adds one."""


class Capacities:
    """Total resources by node."""

    __slots__ = ("_ever", "_shapes", "_total", "_whole", "count")

    def __init__(self) -> None:
        self.count = 0
        self._total: list[Vector] = [ZERO]
        self._shapes: dict[Vector, int] = {}
        """Capacity -> how many nodes have it. Few capacities are different."""
        self._ever: dict[tuple[tuple[Vector, ...], int], bool] = {}
        """Answers of `could_ever_fit_all` for the current nodes."""
        self._whole: NDArray[np.int64] = np.zeros((3, 8), dtype=np.int64)
        """Capacities by node."""

    def _set_capacity(self, node: int, capacity: Vector) -> None:
        if node >= len(self._total):
            self._total += [ZERO] * (node + 1 - len(self._total))
        if node >= self._whole.shape[1]:
            self._whole = np.pad(self._whole, ((0, 0), (0, 2 * node - self._whole.shape[1])))
        if capacity != self._total[node]:
            self._count_shape(self._total[node], -1)
            self._count_shape(capacity, 1)
            self._ever.clear()
        self._total[node] = capacity
        self._whole[:, node] = capacity
        self.count = max(self.count, node)

    def _count_shape(self, capacity: Vector, by: int) -> None:
        count = self._shapes.pop(capacity, 0) + by
        if count and capacity != ZERO:  # a deleted node, or an ID without a node, has no capacity
            self._shapes[capacity] = count

    def capacity_of(self, node: int) -> Vector:
        return self._total[node] if node < len(self._total) else ZERO

    def capacities(self, among: Suitable | None = None) -> NDArray[np.int64]:
        """Return the capacity of each node, open or not, of shape (3, nodes + 1); 0 for a node that is not `among` these."""
        whole = self._whole[:, : self.count + 1]
        return whole if among is None else np.where(among.mask, whole, 0)

    def could_ever_fit_all(self, needs: Sequence[Vector], among: Suitable | None = None) -> bool:
        """Whether all of these needs would fit together if every node, up or not, were empty."""
        asked = tuple(needs), -1 if among is None else among.bits
        known = self._ever.get(asked)
        if known is None:
            total = np.array([t if t != ZERO else (_NONE,) * 3 for t in self._total[: self.count + 1]], dtype=np.int64).T
            if among is not None:
                total = np.where(among.mask, total, _NONE)
            if len(self._ever) == _KNOWN:
                self._ever.clear()
            known = self._ever[asked] = pack(needs, total) is not None
        return known

    def could_ever_fit(self, need: Vector, among: Suitable | None = None) -> bool:
        """Whether the need fits the capacity of some node, up or not."""
        if among is not None:
            return self.could_ever_fit_all((need,), among)
        for capacity in self._shapes:  # noqa: SIM110  # a generator takes three times as long
            if fits(need, capacity):
                return True
        return False

    def shapes(self) -> Iterable[Vector]:
        """Return the different capacities of nodes."""
        return self._shapes

    def total_cpu(self) -> int:
        return sum(capacity.cpu_milli * count for capacity, count in self._shapes.items())
