"""A pool of nodes that are alike: an index of its physical side, which follows from facts that are set.

Setters may be called again with the same facts, and in any order; setting the facts from before restores everything. A node is
a *slot*, its number at the level of nodes: the slots of rack r are r * fan to r * fan + fan - 1. If nodes are the top, slots
are any integers.
"""

from collections.abc import Iterator, Sequence, Set

from scheduler_service.core.cells.available_parts import OwnedParts
from scheduler_service.core.cells.cell_choice import Choose, best, costs_nobody, first, opportunistic, partly_healthy
from scheduler_service.core.cells.free_lists import Free
from scheduler_service.core.cells.healthy_leaves import HealthyLeaves
from scheduler_service.core.cells.idle_index import IdleIndex
from scheduler_service.core.cells.node_masks import pick_cell
from scheduler_service.core.cells.promises import Balance, Promises, balance, holds
from scheduler_service.core.cells.shape import Shape, cell_mask, leaves
from scheduler_service.core.cells.slots import Facts, Slot, Unit
from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask


class Pool:
    """Facts of each node are set: what is healthy, bound and held. Which cells are free, what is available in bound cells, and
    whether all VCs can have what they own follows from the facts, and is kept up to date."""

    __slots__ = (
        "_balance",
        "_facts",
        "_healthy",
        "_lists",
        "_masks",
        "_per",
        "_spare",
        "_units",
        "bound",
        "counts",
        "name",
        "promises",
        "shape",
        "sizes",
        "well",
    )

    def __init__(self, shape: Shape, name: str) -> None:
        self.shape = shape
        self.name = name
        self.bound: list[dict[int, Owner]] = [{} for _ in shape.fan]
        """index -> VC by level."""
        self.promises = Promises(len(shape.fan))
        self._healthy = HealthyLeaves(shape)
        self.well = self._healthy.counts
        """Healthy leaves in a cell, from the level of nodes up."""
        self._facts = Facts(Slot)
        self._lists = Free(shape, self._facts)
        self.counts = self._lists.counts
        """f_k: how many free cells of Algorithm 1 there are of each level."""
        self._spare = IdleIndex(self._facts, shape)
        self._units = OwnedParts(self._facts, shape.devices)
        self.sizes = self._lists.sizes
        """Leaves in a cell, by level."""
        self._per = [shape.devices // shape.size(level) for level in range(shape.node + 1)]
        self._masks = [[cell_mask(shape, level, cell) for cell in range(per)] for level, per in enumerate(self._per)]
        self._balance: Balance | None = None
        """Eqn 1, until something changes."""

    # ---- facts ---------------------------------------------------------------------------------------------------------

    def set_node(self, slot: int, healthy: Mask | None) -> None:
        """Sets which positions are healthy and open for placement; None: there is no such node."""
        here, new = self._facts[slot], healthy or 0
        old = here.healthy
        if new == old:
            return
        here.healthy = new
        self._healthy.add(slot, new.bit_count() - old.bit_count())
        self._units.stale.add(slot)
        self._lists.set_open(slot, new & ~here.bound)
        self._spare.stale.add(slot)
        self._balance = None

    def bind(self, level: int, index: int, vc: Owner) -> None:
        """Binds the cell to the VC. It must be under no other binding and have none inside."""
        was = self.bound[level].get(index)
        if was == vc:
            return
        if was is not None:
            self.unbind(level, index)
        self.bound[level][index] = vc
        self.promises.bind(vc, level, index)
        for slot, mask in self.leaves(level, index):
            here = self._facts[slot]
            if here.bound & mask:
                raise ValueError(f"level {level} cell {index} of {self.name} overlaps a cell that is bound")
            here.bound |= mask
            self._units.add(vc, slot, mask)
            self._lists.set_open(slot, here.healthy & ~here.bound)
            self._spare.stale.add(slot)
        self._balance = None

    def unbind(self, level: int, index: int) -> None:
        vc = self.bound[level].pop(index, None)
        if vc is None:
            return
        self.promises.unbind(vc, level, index)
        for slot, mask in self.leaves(level, index):
            here = self._facts[slot]
            here.bound &= ~mask
            self._units.remove(slot, mask)
            self._lists.set_open(slot, here.healthy & ~here.bound)
            self._spare.stale.add(slot)
        self._balance = None

    def set_guaranteed(self, slot: int, mask: Mask) -> None:
        """Sets the leaves that guaranteed runs hold, or that are kept for them."""
        here = self._facts[slot]
        if mask == here.guaranteed:
            return
        here.guaranteed = mask
        self._units.stale.add(slot)
        self._spare.stale.add(slot)

    def set_opportunistic(self, slot: int, mask: Mask) -> None:
        """Sets the leaves that opportunistic runs hold."""
        if mask == self._facts[slot].opportunistic:
            return
        self._units.stale.add(slot)
        self._lists.set_opportunistic(slot, mask)
        self._spare.stale.add(slot)

    def set_quota(self, vc: Owner, level: int, count: int) -> None:
        """Sets how many cells of the level the VC owns, pinned ones included."""
        self.promises.set_quota(vc, level, count)
        self._balance = None

    def leaves(self, level: int, index: int) -> Sequence[tuple[int, Mask]]:
        """(slot, positions) of a cell, for each of its nodes."""
        if level > self.shape.node:
            return leaves(self.shape, level, index)
        slot, cell = divmod(index, self._per[level])
        return ((slot, self._masks[level][cell]),)

    # ---- what follows --------------------------------------------------------------------------------------------------

    def healthy(self, slot: int) -> Mask:
        return self._facts[slot].healthy

    def idle_leaves(self, slot: int) -> Mask:
        """Healthy leaves that no run holds and that are kept for none."""
        return self._facts[slot].idle_leaves()

    def held_leaves(self, slot: int) -> tuple[Mask, Mask]:
        """Leaves of a node that guaranteed runs hold, and those that opportunistic runs hold."""
        here = self._facts[slot]
        return here.guaranteed, here.opportunistic

    def bound_of(self, vc: Owner, level: int) -> list[int]:
        """The VC's bound cells of the level, in order; there are a_{t,k} of them."""
        return sorted(self.promises.mine.get((vc, level), ()))

    def units(self, vc: Owner) -> Sequence[Unit]:
        """The VC's units with available leaves: the tightest first, then by address."""
        return self._units.parts_of(vc)

    def fitting(self, vc: Owner, n: int) -> Iterator[Unit]:
        """The VC's units that have `n` leaves available, the tightest first."""
        return self._units.fitting(vc, n)

    def unit_from(self, vc: Owner, least: tuple[int, ...]) -> Unit | None:
        """The first of the VC's units, in their order, that does not come before `least`."""
        return self._units.first_from(vc, least)

    def unit_sizes(self, vc: Owner) -> Sequence[int]:
        """How many of the VC's units have 0, 1, 2, ... leaves available; shorter if it has none."""
        return self._units.sizes(vc)

    def visited_nodes(self, vc: Owner) -> Set[int]:
        """The nodes on which opportunistic runs hold leaves of the VC's bound cells."""
        return self._units.visited_nodes(vc)

    def bound_at(self, slot: int) -> Mask:
        """The leaves of all units on the node."""
        return self._facts[slot].bound

    def units_at(self, slot: int) -> dict[Mask, Owner]:
        """positions -> VC of all units on the node."""
        return self._facts[slot].units

    def available(self, slot: int, mask: Mask) -> Mask:
        """Those of these leaves that are healthy and that no guaranteed run holds."""
        here = self._facts[slot]
        return here.healthy & mask & ~here.guaranteed

    # ---- questions -----------------------------------------------------------------------------------------------------

    def balance(self) -> Balance:
        if self._balance is None:
            self._balance = balance(self._lists.counts, self.promises.claims, self.shape.fan)
        return self._balance

    def shortfall(self) -> tuple[int, ...]:
        """Cells missing by level: what all VCs together may still ask for and cannot get."""
        return self.balance().missing

    def holds(self) -> bool:
        """Eqn 2 at every level, with nothing taken off r_k."""
        if self._balance is None:
            return holds(self.counts, self.promises.claims, self.shape.fan)
        return not any(self._balance.missing)

    def count_doomed(self, vc: Owner, level: int) -> int:
        """How many of the VC's free virtual cells cannot be had, even if no other VC asks."""
        return max(0, self.promises.free_of(vc, level) - self.balance().obtainable[level])

    def safe_to_split(self, level_from: int, level_to: int) -> bool:
        """Whether as much of Eqn 2 holds after a claim to one `level_to` cell is met out of a free `level_from` cell."""
        if level_from == level_to:
            return self.counts[level_from] > 0
        return self.counts[level_from] > 0 and all(self.balance().left[level_to + 1 : level_from + 1])

    def costs_nobody(self, vc: Owner, level: int, index: int) -> bool:
        """Whether no more cells would be missing at any level if the VC, which has one to bind, bound this unbound cell."""
        outer = self._lists.outer_level(level, index)
        if outer is not None:
            return self.safe_to_split(outer, level)
        before = self.balance().missing
        self.bind(level, index, vc)  # part of it is not healthy
        after = self.balance().missing
        self.unbind(level, index)
        return all(now <= then for now, then in zip(after, before, strict=True))

    def all_to_bind(self, vc: Owner, level: int, need: int, choose: Choose = first) -> Iterator[int]:
        """The cells to try for a free virtual cell of the VC, which must have one, in order; none if none can be had now. Each
        may be bound and unbound while it is looked at. `choose` decides between cells that opportunistic runs have to leave.

        A VC that has doomed cells gets a partly faulty one first, if that costs no other VC anything and `need` leaves of it
        are healthy: so whole ones stay with VCs that can still get them. Of whole ones, it is enough to try one.
        """
        if self._healthy.partly[max(level, self.shape.node)] and self.count_doomed(vc, level):
            now = self.balance()
            for index in partly_healthy(self._lists, self._facts, self._healthy, level, need):
                if costs_nobody(self._lists, self.promises.claims, now, level, index):
                    yield index
        whole = best(self._lists, self._spare, self.balance, level, choose)
        if whole is not None:
            yield whole

    def idle_sizes(self) -> Sequence[int]:
        """How many nodes have 1, 2, ... idle leaves; the entry for none means nothing."""
        return self._spare.sizes()

    def opportunistic(self, n: int) -> tuple[int, Mask] | None:
        """`n` idle leaves on one node, where guaranteed work will want them last."""
        return opportunistic(self._lists, self._spare, self._facts, n)

    def last_whole(self, level: int) -> tuple[int, Mask] | None:
        """A cell inside a node of which all leaves are idle, on the last node that has one."""
        slot = self._spare.last_whole(level)
        mask = None if slot is None else pick_cell(self.shape, self.idle_leaves(slot), level)
        return None if slot is None or mask is None else (slot, mask)

    # ---- for tests: all that is kept, and the same rebuilt from the facts --------------------------------------------------

    def rebuild(self) -> "Pool":
        other = Pool(self.shape, self.name)
        for slot, here in self._facts.items():
            other.set_node(slot, here.healthy)
            other.set_guaranteed(slot, here.guaranteed)
            other.set_opportunistic(slot, here.opportunistic)
        for level, cells in enumerate(self.bound):
            for index, vc in cells.items():
                other.bind(level, index, vc)
        for vc, counts in self.promises.quota.items():
            for level, count in enumerate(counts):
                other.set_quota(vc, level, count)
        return other

    def snapshot(self) -> dict[str, object]:
        """Everything as plain comparable values."""
        lists, promises = self._lists, self.promises
        facts = {s: (x.healthy, x.bound, x.guaranteed, x.opportunistic, x.open) for s, x in self._facts.items()}
        return {
            "bound": [dict(cells) for cells in self.bound],
            "free": [list(cells) for cells in lists.lists],
            "counts": (
                list(lists.counts),
                [dict(c) for c in lists.used],
                [dict(c) for c in lists.wholes],
                [dict(c) for c in self.well],
            ),
            "partly": [set(cells) for cells in self._healthy.partly],
            "facts": {slot: masks for slot, masks in facts.items() if any(masks)},
            "spare": self._spare.snapshot(),
            "units": self._units.snapshot(),
            "promises": (dict(promises.quota), {key: set(cells) for key, cells in promises.mine.items()}),
            "unbound": {vc: tuple(counts) for vc, counts in promises.unbound.items() if any(counts)},
            "sums": (list(promises.reserved), list(promises.claims)),
            "balance": self.balance(),
        }
