"""Free resources by node, such that the first node that fits is found without a loop over all nodes.

Free is capacity less what runs own less what earmarks keep. Nodes are tried in the order of their IDs (1, 2, ...). Mostly
devices are scarce: the nodes that have enough of them are a set of bits, of which the first few are tried one by one. If these
lack something else, all nodes are searched, as columns of an integer matrix.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.model import Node, NodeState
from scheduler_service.core.model.values import ZERO, Vector, add, fits, minimum, sub
from scheduler_service.core.state.resources.capacities import Capacities
from scheduler_service.core.state.resources.node_bits import bits_of, mask_of
from scheduler_service.core.state.resources.packing import pack
from scheduler_service.core.state.resources.suitable_nodes import Suitable

_NEVER = -1

# What a node lacks to the maximum that counts, in one integer: bit fields for devices, CPU and memory, each below a guard bit.
# One addition adds a need to all fields: if no guard bit is set, the need fits. A closed node has all guard bits set.
_CPU, _DEVICES = 25, 50
_MOST = Vector((1 << 24) - 1, (1 << 24) - 1, (1 << 12) - 1)
_CPU_MOST, _MEMORY_MOST, _DEVICES_MOST = _MOST
_ALL = _MEMORY_MOST | _CPU_MOST << _CPU | _DEVICES_MOST << _DEVICES
_GUARDS = 1 << 24 | 1 << 24 + _CPU | 1 << 12 + _DEVICES
_CLOSED = _GUARDS
_guards = np.array(_GUARDS)  # numpy computes fastest with a zero-dimensional array

_COUNTED = 16
"""A node with more free devices than this counts as having this many."""
_LOOKED_AT = 4
"""Number of nodes that are tried one by one: for more nodes numpy is faster."""


class Kept(NamedTuple):
    """Resources that a job must leave free on nodes when it is placed, for jobs that wait before it."""

    bits: int
    """The nodes: bit i is node i."""
    need: Vector | None
    """Amount to leave on each of these nodes, of every resource that the job takes there; None: it may take nothing there."""
    devices: int = 0
    """Each waiting job starts there only once this many devices are free; 0: one of them needs none, or none of its own."""


class FreeResources(Capacities):
    """Free and total resources by node."""

    __slots__ = (
        "_asked",
        "_counted",
        "_free",
        "_having",
        "_kept_bits",
        "_lacking",
        "_offered",
        "_scratch",
        "_stale",
        "_uncounted",
        "_unlisted",
        "_up",
        "changes",
        "kept",
    )

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        """Number of times that what a node has free has changed, or that a node opened or closed."""
        self._free: list[Vector] = [ZERO]
        self._up: list[bool] = [False]
        self._having: list[int] = [0] * (_COUNTED + 1)
        """Number of devices -> the open nodes that have at least as many free; bit i is node i."""
        self._counted: list[int] = [_NEVER]
        """Node -> the number of free devices under which `_having` lists it."""
        self._uncounted: set[int] = set()
        """Nodes for which `_having` is not up to date."""
        self._offered: NDArray[np.int64] = np.full((3, 8), _NEVER, dtype=np.int64)
        self._stale: set[int] = set()
        """Nodes for which `_offered` is not up to date."""
        self._lacking: NDArray[np.int64] = np.full(8, _CLOSED, dtype=np.int64)
        """Difference to _MOST, as bit fields; more than _MOST counts as _MOST."""
        self._unlisted: set[int] = set()
        """Nodes for which `_lacking` is not up to date."""
        self._scratch = np.empty_like(self._lacking)
        self.kept: Sequence[Kept] = ()
        """Resources that a job for which room is sought now must leave on nodes (`keeping`)."""
        self._kept_bits = 0
        """The nodes on which something must be left."""
        self._asked: NDArray[np.int64] = np.array(0, dtype=np.int64)  # to add an int itself takes numpy three times as long

    def set_node(self, node: int, row: Node | None) -> None:
        """Sets the node's capacity and state; None: it does not exist (any more)."""
        if node >= len(self._free):
            missing = node + 1 - len(self._free)
            self._free += [ZERO] * missing
            self._up += [False] * missing
            self._counted += [_NEVER] * missing
            if node >= self._offered.shape[1]:
                wider = np.full((3, 2 * node), _NEVER, dtype=np.int64)
                wider[:, : self._offered.shape[1]] = self._offered
                self._offered = wider
                longer = np.full(2 * node, _CLOSED, dtype=np.int64)
                longer[: len(self._lacking)] = self._lacking
                self._lacking, self._scratch = longer, np.empty_like(longer)
        total = row.capacity if row else ZERO
        self._free[node] = add(self._free[node], sub(total, self.capacity_of(node)))
        self._set_capacity(node, total)
        self._up[node] = row is not None and row.state is NodeState.UP and row.drained_us is None
        self._offer(node)

    def take(self, node: int, amount: Vector) -> None:
        self._free[node] = sub(self._free[node], amount)
        self._offer(node)

    def give(self, node: int, amount: Vector) -> None:
        self._free[node] = add(self._free[node], amount)
        self._offer(node)

    def _offer(self, node: int) -> None:
        self.changes += 1
        self._uncounted.add(node)
        self._unlisted.add(node)
        self._stale.add(node)

    def _count(self) -> None:
        having, counted = self._having, self._counted
        for node in self._uncounted:
            before, after = counted[node], self._free[node][2] if self._up[node] else _NEVER
            if not _NEVER <= after <= _COUNTED:
                after = _NEVER if after < 0 else _COUNTED
            for devices in range(before + 1, after + 1):
                having[devices] |= 1 << node
            for devices in range(after + 1, before + 1):
                having[devices] ^= 1 << node
            counted[node] = after
        self._uncounted.clear()

    def _list(self) -> None:
        for node in self._unlisted:
            cpu, memory, devices = self._free[node]
            if not self._up[node] or cpu < 0 or memory < 0 or devices < 0:
                self._lacking[node] = _CLOSED
            else:
                if cpu > _CPU_MOST or memory > _MEMORY_MOST or devices > _DEVICES_MOST:
                    cpu, memory, devices = minimum(self._free[node], _MOST)
                self._lacking[node] = _ALL - (memory | cpu << _CPU | devices << _DEVICES)
        self._unlisted.clear()

    def free(self, node: int) -> Vector:
        return self._free[node]

    def is_open(self, node: int) -> bool:
        """Whether jobs may be placed on the node: it is up, and not drained."""
        return 0 < node < len(self._up) and self._up[node] and not self._kept_bits >> node & 1

    def any_open(self) -> bool:
        """Whether jobs may be placed on any node."""
        return any(self._up)

    @contextmanager
    def keeping(self, kept: Sequence[Kept]) -> Iterator[None]:
        """Inside, `first_fit` and `offered_resources` see only what is free in addition to this, and nodes on which something
        is kept are not open, as for share groups and victims. The node sets of the elements must be disjoint."""
        before = self.kept, self._kept_bits
        self.kept, self._kept_bits = kept, sum(part.bits for part in kept)
        try:
            yield
        finally:
            self.kept, self._kept_bits = before

    def any_device_beside(self, kept: Sequence[Kept]) -> bool:
        """Whether some open node has a free device in addition to what is kept. Cheap."""
        if self._uncounted:
            self._count()
        having, rest = self._having, self._having[1]
        for bits, need, _ in kept:
            if need is not None and having[need[2] + 1 if need[2] < _COUNTED else _COUNTED] & bits:
                return True
            rest &= ~bits
        return rest != 0

    def nodes_with_free(self, devices: int, among: Suitable | None = None) -> int:
        """Return the open nodes with this many free devices; bit i is node i. For more than 16 devices some may have fewer."""
        if self._uncounted:
            self._count()
        may = self._having[devices if devices < _COUNTED else _COUNTED]
        return may if among is None else may & among.bits

    def fitting(self, need: Vector, among: Suitable | None = None) -> int:
        """Return the open nodes that have `need` free in addition to what is kept; bit i is node i."""
        offered = self.offered_resources(among)
        return bits_of((offered[2] >= need[2]) & (offered[0] >= need[0]) & (offered[1] >= need[1])) & ~1

    def first_fit(self, need: Vector, among: Suitable | None = None) -> int | None:
        """Return the first open node, in order of IDs, that has `need` free; `among` these nodes, or all."""
        return self._first_beside(need, among) if self.kept else self._first_within(need, among, None)

    def _first_beside(self, need: Vector, among: Suitable | None) -> int | None:
        """Does what `first_fit` does, leaving what is kept on a node of each resource that the job takes there."""
        first = self._first_within(need, among, ~self._kept_bits)
        for bits, kept, _ in self.kept:
            if kept is not None:
                beside = Vector(*(n + k if n else 0 for n, k in zip(need, kept, strict=True)))
                node = self._first_within(beside, among, bits)
                if node is not None and (first is None or node < first):
                    first = node
        return first

    def _first_within(self, need: Vector, among: Suitable | None, within: int | None) -> int | None:
        """Does what `first_fit` does, regardless of what is kept; `within` is a set of nodes as bits."""
        may, free = self.nodes_with_free(need[2], among), self._free
        if within is not None:
            may &= within
        for _ in range(_LOOKED_AT):
            if not may:
                return None
            lowest = may & -may
            node = lowest.bit_length() - 1
            if fits(need, free[node]):
                return node
            may ^= lowest
        return self._first_of_all(need, among, within) if may else None

    def _first_of_all(self, need: Vector, among: Suitable | None, within: int | None) -> int | None:
        """Does what `_first_within` does, in one pass over the nodes in C."""
        if among is not None or within is not None or not fits(need, _MOST):  # very large nodes
            offered = self._offered_of(among)
            if within is not None:
                offered = np.where(mask_of(within, self.count + 1), offered, _NEVER)
            nodes = pack((need,), offered.copy())
            return None if nodes is None else nodes[0]
        self._list()
        over, asked = self._scratch, self._asked
        asked[()] = need[1] | need[0] << _CPU | need[2] << _DEVICES
        np.add(self._lacking, asked, over)
        np.bitwise_and(over, _guards, over)
        node = over.argmin()  # the first minimum, which is 0 if the need fits
        return None if over[node] else int(node)

    def offered_resources(self, among: Suitable | None = None) -> NDArray[np.int64]:
        """Return free resources by node ID, of shape (3, nodes + 1); -1 for a node that is not open or not `among` these."""
        offered = self._offered_of(among)
        for bits, need, _ in self.kept:
            mask = mask_of(bits, self.count + 1)
            left = np.full_like(offered, _NEVER) if need is None else (offered - np.array(need)[:, np.newaxis]).clip(0)
            offered = np.where(mask & (offered[0] >= 0), left, offered)
        return offered

    def _offered_of(self, among: Suitable | None) -> NDArray[np.int64]:
        for node in self._stale:
            self._offered[:, node] = self._free[node] if self._up[node] else _NEVER
        self._stale.clear()
        offered = self._offered[:, : self.count + 1]
        return offered if among is None else np.where(among.mask, offered, _NEVER)

    def snapshot(self) -> list[tuple[Vector, Vector, bool, tuple[int, ...], int, tuple[int, ...]]]:
        offered = self.offered_resources()
        self._list()
        self._count()
        return [
            (
                self._free[n],
                self._total[n],
                self._up[n],
                tuple(offered[:, n].tolist()),
                int(self._lacking[n]),
                tuple(nodes >> n & 1 for nodes in self._having),
            )
            for n in range(1, len(self._free))
            if self._total[n] != ZERO or self._free[n] != ZERO
        ]
