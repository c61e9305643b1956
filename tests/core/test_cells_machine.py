"""A pool in any state that Hypothesis can think of: what is derived against its definition, promises kept, all undone."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pool_queries import binding_over
from scheduler_service.core.cells.promises import feasible
from scheduler_service.core.cells.shape import leaves
from tests.core.cells import (
    available,
    cells_of,
    cheapest_by_definition,
    free_by_definition,
    free_cells,
    leaves_of,
    shapes,
    to_bind,
)
from tests.thorough import examples

VCS = (1, 2, 3)


class Cells(RuleBasedStateMachine):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        shape = data.draw(shapes())
        tops = data.draw(st.integers(1, 3))
        apart = 5 if shape.node == shape.top else 1  # where nodes are the top, their numbers are any
        self.slots = [slot * apart for slot in range(tops * shape.size(shape.top) // shape.devices)]
        self.full = (1 << shape.devices) - 1
        self.pool = pool = Pool(shape, "pool")
        self.undo: list[Callable[[], None]] = []
        for slot in self.slots:
            pool.set_node(slot, self.full)
        have = available(shape, self.slots)
        left, quotas = have.get(shape.top, 0), dict.fromkeys(range(shape.top + 1), 0)
        for level in range(shape.top, -1, -1):
            for vc in VCS:
                count = data.draw(st.integers(0, left))
                left -= count
                quotas[level] += count
                pool.set_quota(vc, level, count)
            left *= shape.fan[level]
        assert feasible(have, shape, quotas) is None
        self.quotas = dict(pool.promises.quota)

    # ---- facts, each with what undoes it -------------------------------------------------------------------------------

    def set_node(self, slot: int, mask: int | None) -> None:
        old = self.pool.healthy(slot)
        self.undo.append(lambda: self.pool.set_node(slot, old))
        self.pool.set_node(slot, mask)

    def set_guaranteed(self, slot: int, mask: int) -> None:
        old = self.pool.held_leaves(slot)[0]
        self.undo.append(lambda: self.pool.set_guaranteed(slot, old))
        self.pool.set_guaranteed(slot, mask)

    def set_opportunistic(self, slot: int, mask: int) -> None:
        old = self.pool.held_leaves(slot)[1]
        self.undo.append(lambda: self.pool.set_opportunistic(slot, old))
        self.pool.set_opportunistic(slot, mask)

    def set_quota(self, vc: int, level: int, count: int) -> None:
        old = self.pool.promises.count_owned(vc, level)
        self.undo.append(lambda: self.pool.set_quota(vc, level, old))
        self.pool.set_quota(vc, level, count)

    def bind(self, level: int, index: int, vc: int) -> None:
        self.undo.append(lambda: self.pool.unbind(level, index))
        self.pool.bind(level, index, vc)

    def unbind(self, level: int, index: int) -> None:
        vc = self.pool.bound[level][index]
        self.undo.append(lambda: self.pool.bind(level, index, vc))
        self.pool.unbind(level, index)

    def back(self, to: int) -> None:
        while len(self.undo) > to:
            self.undo.pop()()

    # ---- what happens --------------------------------------------------------------------------------------------------

    @rule(vc=st.sampled_from(VCS), level=st.integers(0, 5), need=st.integers(0, 4), fill=st.integers(0))
    def request(self, vc: int, level: int, need: int, fill: int) -> None:
        pool, level = self.pool, min(level, self.pool.shape.top)
        if not pool.promises.free_of(vc, level):
            return
        doomed, before, held = pool.count_doomed(vc, level), pool.shortfall(), pool.holds()
        best = cheapest_by_definition(pool, level)
        cell = to_bind(pool, vc, level, need)
        assert (best is None) == (pool.balance().obtainable[level] == 0)
        if cell is None:
            assert best is None
            assert not held
            return
        inside = leaves_of(pool.shape, level, cell)
        if not doomed or all(pool.healthy(slot) >> i & 1 for slot, i in inside):
            assert best is not None
            outer = [
                k for k in range(level, pool.shape.top + 1)
                for _, index in free_cells(pool, k)
                if inside <= leaves_of(pool.shape, k, index)
            ]  # fmt: skip
            assert (sum(pool.held_leaves(slot)[1] >> i & 1 for slot, i in inside), *outer) == best
        else:
            assert sum(pool.healthy(slot) >> i & 1 for slot, i in inside) >= max(1, need)
        self.bind(level, cell, vc)
        assert all(after <= was for after, was in zip(pool.shortfall(), before, strict=True))
        for slot, mask in leaves(pool.shape, level, cell):
            self.set_guaranteed(slot, pool.held_leaves(slot)[0] | mask & pool.healthy(slot) & fill)
            self.set_opportunistic(slot, pool.held_leaves(slot)[1] & ~pool.held_leaves(slot)[0])

    @precondition(lambda self: any(self.pool.bound))
    @rule(pick=st.integers(0))
    def release(self, pick: int) -> None:
        pool = self.pool
        all_ = sorted((level, index) for level, cells in enumerate(pool.bound) for index in cells)
        level, index = all_[pick % len(all_)]
        before = pool.shortfall()
        owner = pool.bound[level][index]
        legal = len(pool.bound_of(owner, level)) <= pool.promises.count_owned(owner, level)
        well = all(pool.healthy(slot) & mask == mask for slot, mask in leaves(pool.shape, level, index))
        for slot, mask in leaves(pool.shape, level, index):
            self.set_guaranteed(slot, pool.held_leaves(slot)[0] & ~mask)
        self.unbind(level, index)
        if well or not legal:  # what is missing at a level goes first to those above, so it may be missing below instead
            assert pool.shortfall()[::-1] <= before[::-1]

    @rule(n=st.integers(1, 9))
    def opportunistic(self, n: int) -> None:
        pool = self.pool
        found = pool.opportunistic(n)
        bound = {
            leaf for level, cells in enumerate(pool.bound) for index in cells for leaf in leaves_of(pool.shape, level, index)
        }
        outside = {
            slot: sum((slot, i) not in bound and pool.idle_leaves(slot) >> i & 1 for i in range(pool.shape.devices))
            for slot in self.slots
        }
        if found is None:
            assert all(pool.idle_leaves(slot).bit_count() < n for slot in self.slots)
            return
        slot, mask = found
        assert mask.bit_count() == n
        assert mask & ~pool.idle_leaves(slot) == 0
        if any(count >= n for count in outside.values()):
            assert not any(mask >> i & 1 and (slot, i) in bound for i in range(pool.shape.devices))
            dirty = [count for at, count in outside.items() if count >= n and pool.held_leaves(at)[1]]
            if dirty:
                assert pool.held_leaves(slot)[1]
                assert outside[slot] == min(dirty)
        else:
            assert pool.idle_leaves(slot).bit_count() == min(
                pool.idle_leaves(at).bit_count() for at in self.slots if pool.idle_leaves(at).bit_count() >= n
            )
        self.set_opportunistic(slot, pool.held_leaves(slot)[1] | mask)

    @rule(pick=st.integers(0), mask=st.integers(0))
    def reclaim(self, pick: int, mask: int) -> None:
        slot = self.slots[pick % len(self.slots)]
        self.set_opportunistic(slot, self.pool.held_leaves(slot)[1] & mask)

    @rule(pick=st.integers(0), mask=st.integers(0), beyond=st.booleans())
    def health(self, pick: int, mask: int, beyond: bool) -> None:
        """Devices fail or come back; what the spare capacity does not cover, only sometimes."""
        slot, to, held = self.slots[pick % len(self.slots)], len(self.undo), self.pool.holds()
        old = self.pool.snapshot()
        self.set_node(slot, mask & self.full or None)
        if held and not self.pool.holds() and not beyond:
            self.back(to)
            assert self.pool.snapshot() == old

    @rule()
    def well_again(self) -> None:
        for slot in self.slots:
            self.set_node(slot, self.full)

    @rule(vc=st.sampled_from(VCS), level=st.integers(0, 5), count=st.integers(0, 3))
    def quota(self, vc: int, level: int, count: int) -> None:
        self.set_quota(vc, min(level, self.pool.shape.top), count)

    @rule(keep=st.integers(0, 10))
    def undo_some(self, keep: int) -> None:
        """Back, and forth again: the same as before."""
        to = max(0, len(self.undo) - keep)
        self.back(to)

    # ---- what is always so -------------------------------------------------------------------------------------------------

    @invariant()
    def lists_are_as_defined(self) -> None:
        assert [free_cells(self.pool, level) for level in range(len(self.pool.counts))] == free_by_definition(
            self.pool, self.slots
        )
        assert self.pool.balance().obtainable[-1] == self.pool.counts[-1]

    @invariant()
    def everything_follows_from_the_facts(self) -> None:
        assert self.pool.rebuild().snapshot() == self.pool.snapshot()

    @invariant()
    def units_are_the_bound_leaves(self) -> None:
        pool = self.pool
        for vc in VCS:
            mine = [(level, index) for level in range(pool.shape.top + 1) for index in pool.bound_of(vc, level)]
            inside = [
                (slot, mask) for level, index in mine for slot, mask in leaves(pool.shape, level, index)
            ]  # fmt: skip
            found = [((pool.available(slot, mask)).bit_count(), slot, mask) for slot, mask in inside]
            assert list(pool.units(vc)) == sorted(unit for unit in found if unit[0])
            assert all(pool.units_at(slot)[mask] == vc for slot, mask in inside)
            assert list(pool.fitting(vc, 2)) == sorted(unit for unit in found if unit[0] >= 2)

    @invariant()
    def nothing_is_bound_twice(self) -> None:
        pool = self.pool
        owned = [
            leaf for level, cells in enumerate(pool.bound) for index in cells for leaf in leaves_of(pool.shape, level, index)
        ]
        assert len(owned) == len(set(owned))
        for level, index in cells_of(pool.shape, self.slots):
            if index in pool.bound[level]:
                assert {binding_over(pool, slot, i) for slot, i in leaves_of(pool.shape, level, index)} == {(level, index)}

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        before = self.pool.snapshot()
        again = self.pool.rebuild()
        for level, cells in enumerate(self.pool.bound):
            for index in list(cells):
                self.unbind(level, index)
        for slot in self.slots:
            self.set_node(slot, self.full)
        assert {level: count for level, count in enumerate(self.pool.counts) if count} == available(self.pool.shape, self.slots)
        assert again.snapshot() == before
        self.back(0)
        first = Pool(self.pool.shape, "pool")
        for slot in self.slots:
            first.set_node(slot, self.full)
        for vc, level, count in ((vc, *pair) for vc, counts in self.quotas.items() for pair in enumerate(counts)):
            first.set_quota(vc, level, count)
        assert self.pool.snapshot() == first.snapshot()


TestCells = Cells.TestCase
TestCells.settings = settings(max_examples=examples(20), stateful_step_count=30)
