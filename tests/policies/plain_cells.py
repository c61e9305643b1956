"""Cells as plain sets of leaves: slow, and nothing of it shared with what it is there to check.

A leaf is a number; a cell of a level is the leaves from `index * size` to `index * size + size - 1`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from scheduler_service.core.model import NodeState
from scheduler_service.core.state.state import State

Leaves = frozenset[int]


class Plain(NamedTuple):
    """A pool."""

    name: str
    levels: tuple[str, ...]
    """From the device outwards."""
    sizes: tuple[int, ...]
    """Leaves in a cell, by level."""
    node: int
    """The level of nodes."""
    nodes: tuple[str, ...]
    """Their names, by slot."""

    @property
    def devices(self) -> int:
        return self.sizes[self.node]

    @property
    def leaves(self) -> int:
        return len(self.nodes) * self.devices

    def cells(self, level: int) -> list[Leaves]:
        size = self.sizes[level]
        return [frozenset(range(first, first + size)) for first in range(0, self.leaves, size)]

    def cell(self, level: str, index: int) -> Leaves:
        return self.cells(self.levels.index(level))[index]

    def leaf(self, node: str, device: int) -> int:
        return self.nodes.index(node) * self.devices + device


def maximal(pool: Plain, leaves: Leaves) -> list[list[Leaves]]:
    """The free lists of Algorithm 1: by level, the cells that are wholly in these leaves and in no larger one that is."""
    found: list[list[Leaves]] = [[] for _ in pool.levels]
    rest = set(leaves)
    for level in reversed(range(len(pool.levels))):
        for cell in pool.cells(level):
            if cell <= rest:
                found[level].append(cell)
                rest -= cell
    assert not rest
    return found


def missing(pool: Plain, free: Leaves, claims: Mapping[int, int]) -> list[int]:
    """By level, the claims to cells that nothing stands against when the highest are served first (Eqns 1 and 2)."""
    rest, short = set(free), [0] * len(pool.levels)
    for level in reversed(range(len(pool.levels))):
        whole = [cell for cell in pool.cells(level) if cell <= rest]
        wanted = claims.get(level, 0)
        short[level] = max(0, wanted - len(whole))
        for cell in whole[:wanted]:
            rest -= cell
    return short


def feasible(pool: Plain, pinned: Iterable[Leaves], quotas: Mapping[int, int]) -> bool:
    """Whether distinct cells, outside the pinned ones, can be found for all quotas."""
    free = set(range(pool.leaves))
    for cell in pinned:
        if not cell <= free:
            return False
        free -= cell
    return not any(missing(pool, frozenset(free), quotas))


def healthy(state: State, pool: Plain) -> Leaves:
    """Leaves on which something could be placed."""
    found = set()
    for name in pool.nodes:
        node = state.nodes.rows[state.node_ids[name]]
        if node.state is NodeState.UP and node.drained_us is None:
            for device in range(pool.devices):
                row = state.devices.rows.get((node.id, device))  # none where the leaves are CPUs
                if row is None or not row.fault:
                    found.add(pool.leaf(name, device))
    return frozenset(found)


def bound(state: State, pool: Plain) -> Leaves:
    cells = [pool.cell(row.level, row.index) for row in state.bindings.rows.values() if row.pool == pool.name]
    return frozenset().union(*cells)


def unbound(state: State, pool: Plain, vc: int) -> dict[int, int]:
    """By level, how many cells the virtual cluster owns and has not bound; negative where it has more than it owns."""
    counts = dict.fromkeys(range(len(pool.levels)), 0)
    for quota in state.vcs.rows[vc].quotas:
        if quota.pool == pool.name:
            counts[pool.levels.index(quota.level)] += quota.cells
    for row in state.bindings.rows.values():
        if (row.pool, row.vc, row.pin) == (pool.name, vc, ""):
            counts[pool.levels.index(row.level)] -= 1
    return counts


def claims(state: State, pool: Plain) -> dict[int, int]:
    """By level, the free virtual cells of all virtual clusters."""
    total = dict.fromkeys(range(len(pool.levels)), 0)
    for vc in state.vcs.rows:
        for level, count in unbound(state, pool, vc).items():
            total[level] += max(0, count)
    return total


def short(state: State, pool: Plain) -> list[int]:
    """By level, the cells that are promised and could not be had now."""
    return missing(pool, healthy(state, pool) - bound(state, pool), claims(state, pool))
