"""Pools: which node is which cell of which pool, as it follows from the nodes and from what the site says about them.

Nodes are alike if they have devices of one model in the same tree; they make a pool whose largest cell is a node. So do nodes
without devices that have the same number of CPUs: their smallest cell is a CPU, which carries its share of the memory. A site
may name some of its nodes instead, and group them further (`PoolPlan`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.positions import PoolPosition, cpus_of, name_of, positions, row_of, tree_of
from scheduler_service.core.cells.shape import Shape, level_of
from scheduler_service.core.model import Node, NodeDevice, NodeState
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.virtual_clusters import Binding, Owner, VirtualCluster
from scheduler_service.core.model.values import Mask, Vector, minimum


class _Node(NamedTuple):
    """Facts of a node: the part of a shape that is inside it, and which positions are healthy and open."""

    position: PoolPosition
    inner: Shape
    model: str
    healthy: Mask
    memory_mib: int = 0
    """Memory of the device that has the least; 0 if it has no devices."""


class Pools:
    """The pools by name. All of it follows from what was set last, in any order."""

    def __init__(self, plans: Iterable[PoolPlan] = (), host_percent: int = 0, limit_percent: int = 100) -> None:
        """`host_percent`: how much of nodes with devices goes with none of them; `limit_percent`: how much memory of a device
        the jobs that share it may use."""
        self.pools: dict[str, Pool] = {}
        self.models: dict[str, str] = {}
        """Pool -> the model of its devices."""
        self.positions: dict[int, PoolPosition] = {}
        self.misfits: dict[int, str] = {}
        """Nodes that a plan names and that are not like its other nodes: nothing is placed on them."""
        self.nodes: dict[str, dict[int, int]] = {}
        """Pool -> slot -> the node there."""
        self._covered = 100 - host_percent
        self._limit_percent = limit_percent
        self._plans = {plan.name: plan for plan in plans}
        self._planned = {name: (plan.name, slot) for plan in plans for slot, name in enumerate(plan.nodes)}
        self._facts: dict[str, dict[int, _Node]] = {}
        """Pool -> node -> its facts."""
        self._pool_of: dict[int, str] = {}
        """Node -> the pool that has its facts."""
        self._first: dict[str, int] = {}
        """Planned pool -> its node that joined first: all others must be like that one, whatever their places."""
        self._placed: list[int] = []
        """Result of `set_node`."""
        self._order: list[str] | None = None
        """Result of `in_order`, until a pool comes or goes."""
        self._shares: dict[str, Counter[Vector]] = {}
        self._lowest: dict[str, tuple[Vector, int]] = {}
        """Results of `share` and `device_memory_mib`, until a node comes or goes."""
        self._vcs: dict[int, VirtualCluster] = {}
        self._exchanged: dict[int, dict[tuple[str, str], int]] = {}
        """Virtual cluster -> (pool, level) -> what open windows add to its quota."""
        self._bindings: dict[str, dict[tuple[str, int], Binding]] = {}

    # ---- facts -----------------------------------------------------------------------------------------------------------

    def set_node(self, node: int, row: Node | None, devices: Sequence[NodeDevice]) -> list[int]:
        """Sets what the node is and has; None: it does not exist. Returns the nodes that have a place in a pool now, or another
        one: what is held of them has to be set again."""
        self._placed = []
        name = self._pool_of.get(node)
        before = None if name is None else self._facts[name][node]
        now = None if row is None else self._describe_node(row, devices)
        if name is not None and before is not None and (now is None or before._replace(healthy=now.healthy) != now):
            self._leave(node, name, before)
        if now is not None:
            pool = self._join(node, now)
            if pool is None:
                self._note_misfit(node, now.position.pool)
            else:
                pool.set_node(now.position.slot, now.healthy)
        return self._placed

    def hold(self, node: int, guaranteed: Mask, opportunistic: Mask) -> None:
        """Sets which of the node's devices are held, or kept, as guaranteed, and which ones opportunistic runs hold."""
        position = self.positions.get(node)
        if position is not None:
            pool = self.pools[position.pool]
            pool.set_guaranteed(position.slot, positions(position, guaranteed))
            pool.set_opportunistic(position.slot, positions(position, opportunistic))

    def set_vc(self, vc: int, row: VirtualCluster | None) -> None:
        before = self._vcs.pop(vc, None)
        if row is not None:
            self._vcs[vc] = row
        for name in {quota.pool for known in (before, row) if known is not None for quota in known.quotas}:
            if name in self.pools:
                self._set_quotas(self.pools[name], vc, row)

    def set_exchanged(self, vc: int, pool: str, level: str, count: int) -> None:
        """Sets what open windows add to a quota; negative for givers."""
        mine = self._exchanged.setdefault(vc, {})
        mine[pool, level] = count
        if not count:
            del mine[pool, level]
        if not mine:
            del self._exchanged[vc]
        if pool in self.pools:
            self._set_quotas(self.pools[pool], vc, self._vcs.get(vc))

    def set_binding(self, old: Binding | None, new: Binding | None) -> None:
        for row in (old, new):
            if row is None:
                continue
            of_pool, at = self._bindings.setdefault(row.pool, {}), (row.level, row.index)
            pool = self.pools.get(row.pool)
            level = None if pool is None else level_of(pool.shape, row.level)
            if row is old:
                del of_pool[at]
                if pool is not None and level is not None:
                    pool.unbind(level, row.index)
            else:
                of_pool[at] = row
                if pool is not None and level is not None:
                    pool.bind(level, row.index, Owner(row.vc, row.pin))

    # ---- questions -------------------------------------------------------------------------------------------------------

    def in_order(self) -> list[str]:
        """Pools in the order in which a job that names none tries them: those with the smallest top-level cell first."""
        if self._order is None:
            self._order = sorted(self.pools, key=lambda name: (self.pools[name].shape.size(self.pools[name].shape.top), name))
        return self._order

    def share(self, pool: str) -> Vector:
        """The share of its node that goes with each device of the pool."""
        return self._least_share(pool)[0]

    def device_memory_mib(self, pool: str) -> int:
        """How much memory each device of the pool has at least; 0 if it has no devices."""
        return self._least_share(pool)[1]

    def usable_mib(self, pool: str) -> int:
        """How much of a device's memory the jobs that share it may use together, on each device of the pool at least."""
        return self.device_memory_mib(pool) * self._limit_percent // 100

    def _least_share(self, pool: str) -> tuple[Vector, int]:
        lowest = self._lowest.get(pool)
        if lowest is None:
            memory_mib = min((self._facts[pool][node].memory_mib for node in self.nodes[pool].values()), default=0)
            lowest = self._lowest[pool] = reduce(minimum, self._shares[pool]), memory_mib
        return lowest

    def has_cells_in(self, vc: VirtualCluster) -> set[str]:
        """The pools in which the virtual cluster owns cells, or has some in exchange."""
        owned = {quota.pool for quota in vc.quotas}
        exchanged = self._exchanged.get(vc.id)
        return owned if exchanged is None else owned | {pool for (pool, _), count in exchanged.items() if count > 0}

    def tops(self, pool: str) -> int:
        """How many cells of its highest level the pool has, healthy or not."""
        plan, shape = self._plans.get(pool), self.pools[pool].shape
        nodes = len(self._facts[pool]) if plan is None else len(plan.nodes)
        return nodes * shape.devices // shape.size(shape.top)

    def exists(self, pool: str, level: int, index: int) -> bool:
        plan, shape = self._plans.get(pool), self.pools[pool].shape
        if plan is None:
            return index * shape.size(level) // shape.devices in self.nodes[pool]
        return 0 <= index < len(plan.nodes) * shape.devices // shape.size(level)

    def place_left_out(self, node: int) -> tuple[str, int] | None:
        """Pool and slot of a node that its pool leaves out: it had the cells there while it was like the others. Else None."""
        name = self._pool_of.get(node) if node in self.misfits else None
        return None if name is None else (name, self._facts[name][node].position.slot)

    def share_per_device(self, capacity: Vector, devices: int) -> Vector:
        """The share of such a node that goes with each of its devices."""
        cpu, memory, _ = (amount * self._covered // (100 * devices) for amount in capacity)
        return Vector(cpu, memory, 1)

    # ---- inside ----------------------------------------------------------------------------------------------------------

    def _describe_node(self, row: Node, devices: Sequence[NodeDevice]) -> _Node:
        paths = tuple(device.path for device in devices)
        inner, order = tree_of(row.levels, paths) if devices else (row_of(cpus_of(row.capacity)), ())
        model = devices[0].model if devices else ""
        planned = self._planned.get(row.name)
        pool, slot = planned or (name_of(model, inner), row.id)
        count = inner.devices
        share = self.share_per_device(row.capacity, count) if devices else Vector(*(amount // count for amount in row.capacity))
        healthy = 0
        if row.state is NodeState.UP and row.drained_us is None:
            places = order or tuple(range(len(devices)))
            well = sum(1 << place for place, index in enumerate(places) if not devices[index].fault)
            healthy = well if devices else (1 << count) - 1
        memory_mib = min((device.memory_mib for device in devices), default=0)
        return _Node(PoolPosition(pool, slot, order, share), inner, model, healthy, memory_mib)

    def _join(self, node: int, now: _Node) -> Pool | None:
        """Adds the node to its pool, and returns that; None if it does not fit in."""
        name = now.position.pool
        facts = self._facts.setdefault(name, {})
        facts[node], self._pool_of[node] = now, name
        leading = now
        if name in self._plans:
            if name not in self._first or node < self._first[name]:
                self._first[name] = node
            leading = facts[self._first[name]]
        pool = self.pools.get(name)
        if pool is None or self.models[name] != leading.model or _shape_of_node(pool) != leading.inner:
            self._make(name, leading)
        elif node not in self.positions and now.inner == leading.inner and now.model == leading.model:
            self._place(node, now)
        return self.pools[name] if node in self.positions else None

    def _make(self, name: str, leading: _Node) -> None:
        """Rebuilds the pool from all that is known of it."""
        plan = self._plans.get(name)
        above = plan.levels if plan is not None else ()
        levels = (*leading.inner.levels, *(level for level, _ in above))
        pool = Pool(Shape(levels, (*leading.inner.fan, *(fan for _, fan in above)), leading.inner.node), name)
        self.pools[name], self.models[name], self._shares[name], self._order = pool, leading.model, Counter(), None
        self.nodes[name] = {}
        for vc, row in self._vcs.items():
            self._set_quotas(pool, vc, row)
        for (level, index), binding in self._bindings.get(name, {}).items():
            if (number := level_of(pool.shape, level)) is not None:
                pool.bind(number, index, Owner(binding.vc, binding.pin))
        for node, fact in self._facts[name].items():
            self.positions.pop(node, None)
            if fact.inner == leading.inner and fact.model == leading.model:
                self.misfits.pop(node, None)
                self._place(node, fact)
                pool.set_node(fact.position.slot, fact.healthy)
            else:
                self._note_misfit(node, name)

    def _note_misfit(self, node: int, pool: str) -> None:
        self.misfits[node] = f"its devices are not like those of the other nodes of pool {pool}"

    def _place(self, node: int, fact: _Node) -> None:
        self.misfits.pop(node, None)
        self.positions[node] = fact.position
        self.nodes[fact.position.pool][fact.position.slot] = node
        self._shares[fact.position.pool][fact.position.share] += 1
        self._lowest.pop(fact.position.pool, None)
        self._placed.append(node)

    def _leave(self, node: int, name: str, fact: _Node) -> None:
        facts = self._facts[name]
        del facts[node], self._pool_of[node]
        self.misfits.pop(node, None)
        if node in self.positions:
            del self.positions[node]
            del self.nodes[name][fact.position.slot]
            self._shares[name] -= Counter([fact.position.share])
            self._lowest.pop(name, None)
            pool = self.pools[name]
            pool.set_node(fact.position.slot, None)
            pool.set_guaranteed(fact.position.slot, 0)
            pool.set_opportunistic(fact.position.slot, 0)
        if not facts:
            del self.pools[name], self.models[name], self._shares[name], self._facts[name], self.nodes[name]
            self._first.pop(name, None)
            self._order = None
        elif self._first.get(name) == node:
            first = self._first[name] = min(facts)
            if (facts[first].inner, facts[first].model) != (fact.inner, fact.model):
                self._make(name, facts[first])

    def _set_quotas(self, pool: Pool, vc: int, row: VirtualCluster | None) -> None:
        owned: Counter[int] = Counter()
        for quota in row.quotas if row is not None else ():
            if quota.pool == pool.name and (level := level_of(pool.shape, quota.level)) is not None:
                owned[level] += quota.cells
        for (name, level_name), count in self._exchanged.get(vc, {}).items():
            if name == pool.name and (level := level_of(pool.shape, level_name)) is not None:
                owned[level] += count
        for level in range(len(pool.shape.levels)):
            pool.set_quota(Owner(vc), level, owned[level])

    def snapshot(self) -> dict[str, object]:
        """For tests: everything, as plain comparable values."""
        return {
            "pools": {name: pool.snapshot() for name, pool in self.pools.items()},
            "positions": dict(self.positions),
            "misfits": dict(self.misfits),
            "shares": {name: dict(shares) for name, shares in self._shares.items()},
        }


def _shape_of_node(pool: Pool) -> Shape:
    shape = pool.shape
    return Shape(shape.levels[: shape.node + 1], shape.fan[: shape.node + 1], shape.node)
