"""How much of each node is free: one integer matrix, so that the first node that fits is found without a loop.

Free is capacity less what runs own less what earmarks keep. Nodes are columns in order of their ids (1, 2, ...), which is
the order in which they are tried.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.job import Node, NodeState
from scheduler_service.core.values import ZERO, Vector, add, fits, least, sub

_NEVER = -1
_KNOWN = 1024
"""Answers of `could_ever_fit_all` that are kept: users may ask for ever more different gangs."""

# What a node offers, in one integer: bit fields for devices (plus one: nothing at all is less than none), CPU and memory,
# each below a guard bit. Take a need off, field by field at once: where the guards are all still there, it fits.
_CPU, _DEVICES = 25, 50
_MOST = Vector((1 << 24) - 1, (1 << 24) - 1, (1 << 12) - 2)
_GUARDS = 1 << 24 | 1 << 24 + _CPU | 1 << 12 + _DEVICES
_CLOSED = _GUARDS


def _fields(amount: Vector) -> int:
    return amount[1] | amount[0] << _CPU | amount[2] + 1 << _DEVICES


def largest_first(needs: Sequence[Vector]) -> list[int]:
    """Their places, by devices, then CPU, then memory."""
    return sorted(range(len(needs)), key=lambda i: (-needs[i].devices, -needs[i].cpu_milli, -needs[i].memory_mib))


def pack(needs: Sequence[Vector], offered: NDArray[np.int64]) -> list[int] | None:
    """A node for each need, the largest first and each on the first node that has room; None where one finds none.

    `offered` (3, nodes + 1) is what is free by node, as `Room.offered` gives it; what is taken is taken off it.
    """
    nodes = [0] * len(needs)
    for i in largest_first(needs):
        cpu, memory, devices = needs[i]
        enough = offered[2] >= devices
        enough &= offered[0] >= cpu
        enough &= offered[1] >= memory
        enough[0] = False
        node = int(enough.argmax())
        if not enough[node]:
            return None
        offered[:, node] -= needs[i]
        nodes[i] = node
    return nodes


class Room:
    """Free and total resources by node."""

    __slots__ = ("_ever", "_free", "_offered", "_packed", "_shapes", "_total", "_up", "count")

    def __init__(self) -> None:
        self.count = 0
        self._free: list[Vector] = [ZERO]
        self._total: list[Vector] = [ZERO]
        self._up: list[bool] = [False]
        self._shapes: dict[Vector, int] = {}
        """How many nodes there are of each capacity: few are different."""
        self._ever: dict[tuple[Vector, ...], bool] = {}
        """What `could_ever_fit_all` has said of the nodes as they are."""
        self._offered: NDArray[np.int64] = np.full((3, 8), _NEVER, dtype=np.int64)
        self._packed: NDArray[np.int64] = np.full(8, _CLOSED, dtype=np.int64)
        """What `_fields` makes of the same, with guards; what is more than _MOST counts as that."""

    def set_node(self, node: int, row: Node | None) -> None:
        """Tells the node's capacity and state; None: it does not exist (any more)."""
        if node >= len(self._free):
            missing = node + 1 - len(self._free)
            self._free += [ZERO] * missing
            self._total += [ZERO] * missing
            self._up += [False] * missing
            if node >= self._offered.shape[1]:
                wider = np.full((3, 2 * node), _NEVER, dtype=np.int64)
                wider[:, : self._offered.shape[1]] = self._offered
                self._offered = wider
                longer = np.full(2 * node, _CLOSED, dtype=np.int64)
                longer[: len(self._packed)] = self._packed
                self._packed = longer
        total = row.capacity if row else ZERO
        if total != self._total[node]:
            self._count_shape(self._total[node], -1)
            self._count_shape(total, 1)
            self._ever.clear()
        self._free[node] = add(self._free[node], sub(total, self._total[node]))
        self._total[node] = total
        self._up[node] = row is not None and row.state is NodeState.UP and row.drained_us is None
        self.count = max(self.count, node)
        self._offer(node)

    def _count_shape(self, capacity: Vector, by: int) -> None:
        count = self._shapes.pop(capacity, 0) + by
        if count and capacity != ZERO:  # what is no node (any more) has no capacity
            self._shapes[capacity] = count

    def take(self, node: int, amount: Vector) -> None:
        self._free[node] = sub(self._free[node], amount)
        self._offer(node)

    def give(self, node: int, amount: Vector) -> None:
        self._free[node] = add(self._free[node], amount)
        self._offer(node)

    def _offer(self, node: int) -> None:
        offered, free = self._offered, self._free[node]
        if self._up[node]:
            offered[0, node], offered[1, node], offered[2, node] = free
            self._packed[node] = _CLOSED if min(free) < 0 else _fields(least(free, _MOST)) | _GUARDS
        else:
            offered[0, node] = offered[1, node] = offered[2, node] = _NEVER
            self._packed[node] = _CLOSED

    def free(self, node: int) -> Vector:
        return self._free[node]

    def capacity_of(self, node: int) -> Vector:
        return self._total[node] if node < len(self._total) else ZERO

    def is_open(self, node: int) -> bool:
        """Whether something may be placed on it: it is up, and not drained."""
        return 0 < node < len(self._up) and self._up[node]

    def first_fit(self, need: Vector) -> int | None:
        """The first node, in order of ids, that is open and has `need` free. One pass over the nodes in C."""
        if not fits(need, _MOST):  # very large nodes
            nodes = pack((need,), self._offered[:, : self.count + 1].copy())
            return None if nodes is None else nodes[0]
        enough = (self._packed[: self.count + 1] - _fields(need)) & _GUARDS == _GUARDS
        node = int(enough.argmax())
        return node if enough[node] else None

    def offered(self) -> NDArray[np.int64]:
        """(3, nodes + 1): free resources by node id, -1 for a node that is not open."""
        return self._offered[:, : self.count + 1]

    def could_ever_fit_all(self, needs: Sequence[Vector]) -> bool:
        """Whether all of these would fit at once if every node, up or not, were empty."""
        known = self._ever.get(asked := tuple(needs))
        if known is None:
            total = np.array([t if t != ZERO else (_NEVER,) * 3 for t in self._total[: self.count + 1]], dtype=np.int64).T
            if len(self._ever) == _KNOWN:
                self._ever.clear()
            known = self._ever[asked] = pack(needs, total) is not None
        return known

    def could_ever_fit(self, need: Vector) -> bool:
        """Whether some node, up or not, has `need` as its capacity."""
        return any(fits(need, capacity) for capacity in self._shapes)

    def snapshot(self) -> list[tuple[Vector, Vector, bool, tuple[int, ...], int]]:
        return [
            (self._free[n], self._total[n], self._up[n], tuple(self._offered[:, n].tolist()), int(self._packed[n]))
            for n in range(1, len(self._free))
            if self._total[n] != ZERO or self._free[n] != ZERO
        ]
