"""Quotas, bad cells and who is told of them: HIVED's scenarios as far as a pool goes, and Eqns 1 and 2 by hand.

Addresses are slots from 0, so that the scenarios' n1 is slot 0.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.promises import Shortfall, balance, feasible
from scheduler_service.core.cells.shape import Shape
from tests.core.cells import CT1, P100, available, to_bind

RACKS = Shape((*P100.levels, "rack"), (*P100.fan, 2), 3)
DEVICE, NODE, RACK = 0, 3, 4
ONE_GPU_NODES = Shape(("node",), (1,), 0)
A, B = 1, 2


def pool_of(shape: Shape, slots: int, quotas: dict[tuple[int, int], int]) -> Pool:
    pool = Pool(shape, "pool")
    for slot in range(slots):
        pool.set_node(slot, (1 << shape.devices) - 1)
    for (vc, level), count in quotas.items():
        pool.set_quota(vc, level, count)
    return pool


def bound(pool: Pool, vc: int, level: int, need: int = 0) -> int | None:
    cell = to_bind(pool, vc, level, need)
    if cell is not None:
        pool.bind(level, cell, vc)
    return cell


def test_equation_1() -> None:
    """A rack of 2, with 1 of 2 racks claimed: F is 2 nodes; 3 of those and the free one are claimed, none is left."""
    assert balance(free=[0, 1, 2], claims=[0, 3, 1], fan=[1, 8, 2]) == ((0, 3, 2), (0, 0, 1), (0, 0, 0))
    assert balance(free=[3, 1, 2], claims=[1, 2, 1], fan=[1, 8, 2]) == ((11, 3, 2), (10, 1, 1), (0, 0, 0))


def test_what_is_missing_above_is_not_taken_from_below() -> None:
    """Two racks claimed, none free: the node that is free goes to whom a node was promised."""
    assert balance(free=[0, 1, 0], claims=[0, 1, 2], fan=[1, 8, 2]) == ((0, 1, 0), (0, 0, 0), (0, 0, 2))


def test_a_vc_with_more_than_it_owns_takes_nothing_from_the_claims_of_others() -> None:
    pool = pool_of(P100, 3, {(A, NODE): 2, (B, NODE): 1})
    bound(pool, A, NODE)
    bound(pool, A, NODE)
    pool.set_quota(A, NODE, 1)
    pool.set_quota(B, NODE, 2)
    assert pool.promises.claims[NODE] == 2
    assert pool.shortfall() == (0, 0, 0, 1)
    assert not pool.holds()


def test_a_doomed_cell_is_shown_to_those_who_could_not_have_it() -> None:
    """Scenario 8."""
    pool = pool_of(ONE_GPU_NODES, 3, {(A, 0): 2, (B, 0): 1})
    assert bound(pool, A, 0) == 0
    pool.set_node(1, 0)
    assert (pool.count_doomed(A, 0), pool.count_doomed(B, 0)) == (0, 0)
    assert pool.shortfall() == (1,)
    assert bound(pool, B, 0) == 2
    assert (pool.count_doomed(A, 0), pool.count_doomed(B, 0)) == (1, 0)
    pool.unbind(0, 2)
    assert (pool.count_doomed(A, 0), pool.count_doomed(B, 0)) == (0, 0)
    pool.set_node(2, None)
    assert (pool.count_doomed(A, 0), pool.count_doomed(B, 0)) == (1, 1)
    assert bound(pool, B, 0) is None
    pool.set_node(2, 1)
    assert (pool.count_doomed(A, 0), pool.count_doomed(B, 0)) == (0, 0)


def test_infeasible_quotas() -> None:
    """Scenario 9: three node cells, two single GPUs and a pinned one, on three nodes of two."""
    assert feasible(available(CT1, range(3)), CT1, {1: 3, 0: 2}) == Shortfall(0, 2)
    pinned = available(CT1, range(3), [(0, 0)])
    assert pinned == {1: 2, 0: 1}
    assert feasible(pinned, CT1, {1: 3, 0: 2}) == Shortfall(1, 1)
    assert feasible(pinned, CT1, {1: 2, 0: 2}) == Shortfall(0, 1)
    assert feasible(pinned, CT1, {1: 2, 0: 1}) is None
    assert feasible(pinned, CT1, {1: 1, 0: 3}) is None


def test_a_pinned_cell_counts_on_both_sides_of_a_pool() -> None:
    pool = pool_of(CT1, 3, {(A, 1): 2, (A, 0): 2})
    assert pool.holds()
    pool.bind(0, 0, A)  # the pin: one of its two single GPUs
    assert pool.holds()
    pool.set_quota(A, 0, 3)
    assert pool.shortfall() == (1, 0)


def test_the_next_request_for_a_rack_gets_another_rack() -> None:
    """Scenario 10."""
    pool = pool_of(RACKS, 4, {(A, RACK): 2})
    assert bound(pool, A, RACK) == 0
    pool.set_guaranteed(0, 1)
    assert bound(pool, A, RACK, need=16) == 1
    assert [unit[1:] for unit in pool.fitting(A, 8)] == [(1, 0xFF), (2, 0xFF), (3, 0xFF)]


def test_who_has_doomed_cells_takes_the_partly_faulty_ones() -> None:
    """Scenario 12."""
    pool = pool_of(RACKS, 6, {(A, RACK): 2, (B, RACK): 1})
    for slot in (3, 4, 5):
        pool.set_node(slot, 0)
    assert (pool.count_doomed(A, RACK), pool.count_doomed(B, RACK)) == (1, 0)
    assert bound(pool, A, RACK, need=1) == 1  # n3 is in it
    assert list(pool.units(A)) == [(8, 2, 0xFF)]
    assert bound(pool, B, RACK, need=1) == 0  # n1
    pool.set_guaranteed(2, 1)
    assert list(pool.fitting(A, 8)) == []
    assert bound(pool, A, RACK, need=4) is None  # four sockets wait


def test_a_faulty_cell_is_not_taken_where_another_has_a_claim_to_what_is_well_of_it() -> None:
    pool = pool_of(RACKS, 4, {(A, RACK): 2, (B, NODE): 1})
    pool.set_node(3, None)
    assert pool.shortfall() == (0, 0, 0, 0, 1)
    assert bound(pool, A, RACK, need=16) == 0
    assert pool.count_doomed(A, RACK) == 1
    assert bound(pool, A, RACK, need=1) is None  # node 2 is B's
    assert bound(pool, B, NODE) == 2
    assert bound(pool, A, RACK, need=1) is None  # and bound now


def test_a_part_of_a_faulty_node_serves_too() -> None:
    pool = pool_of(P100, 1, {(A, 2): 2})
    pool.set_node(0, 0b0001_1111)
    assert pool.count_doomed(A, 2) == 1
    assert bound(pool, A, 2, need=1) == 1
    assert bound(pool, A, 2, need=1) == 0
    assert list(pool.units(A)) == [(1, 0, 0xF0), (4, 0, 0x0F)]


def test_a_part_of_a_faulty_node_that_somebody_has_is_not_given_twice() -> None:
    pool = pool_of(P100, 1, {(A, 2): 2, (B, DEVICE): 1})
    pool.set_node(0, 0b0011_0111)
    pool.bind(DEVICE, 4, B)
    assert bound(pool, A, 2, need=1) == 0
    assert bound(pool, A, 2, need=1) is None


def test_of_cells_that_cost_the_same_the_smallest_is_taken() -> None:
    pool = pool_of(RACKS, 4, {(A, NODE): 2})
    pool.bind(NODE, 3, A)
    for slot in (0, 1, 2):
        pool.set_opportunistic(slot, 0b1)
    assert pool.safe_to_split(RACK, NODE)
    assert to_bind(pool, A, NODE) == 2


def test_opportunistic_work_and_the_buddy_begin_at_opposite_ends() -> None:
    pool = pool_of(RACKS, 8, {(A, NODE): 4})
    placed = []
    for n in (1, 8, 4, 3, 2):
        found = pool.opportunistic(n)
        assert found is not None
        placed.append(found)
        pool.set_opportunistic(found[0], pool.held_leaves(found[0])[1] | found[1])
    assert placed == [(7, 0x01), (6, 0xFF), (7, 0xF0), (7, 0x0E), (5, 0x03)]
    assert [bound(pool, A, NODE) for _ in range(4)] == [0, 1, 2, 3]


def test_a_larger_cell_is_split_to_spare_opportunistic_work_where_that_is_safe() -> None:
    pool = pool_of(RACKS, 4, {(A, NODE): 2, (B, RACK): 1})
    pool.bind(NODE, 0, A)
    pool.set_opportunistic(1, 0xFF)
    assert not pool.safe_to_split(RACK, NODE)  # the other rack is B's
    assert to_bind(pool, A, NODE) == 1
    pool.set_quota(B, RACK, 0)
    assert pool.safe_to_split(RACK, NODE)
    assert to_bind(pool, A, NODE) == 2


@pytest.mark.parametrize("first", [A, B])
def test_what_one_vc_left_scattered_is_not_the_others_concern(first: int) -> None:
    """Scenario 13, the paper's Figure 2: A's single GPUs are all on its own node."""
    shape = Shape(("device", "node"), (1, 4), 1)
    pool = pool_of(shape, 2, {(A, 1): 1, (B, 1): 1})
    other = A + B - first
    assert bound(pool, first, 1) == 0
    pool.set_guaranteed(0, 0b1010)  # of four, two have ended
    assert list(pool.fitting(first, 2)) == [(2, 0, 0b1111)]
    assert bound(pool, other, 1, need=4) == 1


def test_overlapping_bindings_are_refused() -> None:
    pool = pool_of(RACKS, 4, {})
    pool.bind(NODE, 1, A)
    with pytest.raises(ValueError, match="overlaps"):
        pool.bind(RACK, 0, B)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8))
def test_quotas_are_feasible_if_they_can_be_had_one_by_one(quotas: list[tuple[int, int]]) -> None:
    """From the top down, as cells are handed out while none is left behind."""
    shape = Shape(("device", "node", "rack"), (1, 2, 2), 1)
    asked = {level: sum(count for at, count in quotas if at == level) for level in range(3)}
    leaves = 3 * 4
    short = None
    for level in (2, 1, 0):
        size = shape.size(level)
        whole = leaves // size
        if short is None and asked[level] > whole:
            short = Shortfall(level, asked[level] - whole)
        leaves -= asked[level] * size
    assert feasible(available(shape, range(6)), shape, asked) == short
