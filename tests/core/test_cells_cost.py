"""What a request costs is a number of calls, and it does not grow with the cluster."""

import sys
from collections.abc import Callable
from random import Random
from types import FrameType

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pool_queries import is_unbound
from scheduler_service.core.cells.shape import Shape, leaves
from tests.core.cells import to_bind


def calls(what: Callable[[], object]) -> int:
    """How many functions, C's among them, are called."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        what()
    finally:
        sys.setprofile(None)
    return count


def loaded(racks: int) -> Pool:
    """Racks of 16 nodes of 8: 40 % in small bound cells, 20 % opportunistic."""
    shape = Shape(("device", "switch", "socket", "node", "rack"), (1, 2, 2, 2, 16), 3)
    pool, rng = Pool(shape, "pool"), Random(7)
    for slot in range(racks * 16):
        pool.set_node(slot, 0xFF)
    for level in range(4):
        pool.set_quota(1, level, racks * 16 * 2 // 5)
    held = 0
    while held < racks * 128 * 2 // 5:
        level = rng.randrange(4)
        bind(pool, level)
        held += shape.size(level)
    while held < racks * 128 * 3 // 5:
        found = pool.opportunistic(n := rng.choice((1, 2, 4, 8)))
        assert found is not None
        pool.set_opportunistic(found[0], pool.held_leaves(found[0])[1] | found[1])
        held += n
    pool.opportunistic(1)
    return pool


def bind(pool: Pool, level: int) -> int:
    index = to_bind(pool, 1, level)
    assert index is not None
    pool.bind(level, index, 1)
    ((slot, mask),) = leaves(pool.shape, level, index)
    pool.set_guaranteed(slot, pool.held_leaves(slot)[0] | mask)
    return index


def unbind(pool: Pool, level: int, index: int) -> None:
    ((slot, mask),) = leaves(pool.shape, level, index)
    pool.set_guaranteed(slot, pool.held_leaves(slot)[0] & ~mask)
    pool.unbind(level, index)


def most_calls(pool: Pool) -> tuple[int, int]:
    """To choose, and to bind, fill, empty and unbind: the most that a request of any level inside a node takes."""
    for level in range(4):  # what is looked up by mask is known from now on
        unbind(pool, level, bind(pool, level))
    pool.opportunistic(1)
    choose = turn = 0
    for level in (0, 1, 2, 3) * 5:
        choose = max(choose, calls(lambda level=level: to_bind(pool, 1, level)))  # type: ignore[misc]
        turn = max(turn, calls(lambda level=level: unbind(pool, level, bind(pool, level))))  # type: ignore[misc]
    return choose, turn


def test_a_request_costs_the_same_in_a_cluster_of_any_size() -> None:
    small, large = most_calls(loaded(4)), most_calls(loaded(256))
    assert small[0] <= 60
    assert large[0] <= small[0] + 10  # a sorted list is in more pieces where it is longer
    assert large[1] <= small[1] + 30


def test_whether_a_cell_costs_others_something_is_told_without_binding_it() -> None:
    """As it turns out where it is bound, in small pools that are nearly promised away, with some faults."""
    shape, rng = Shape(("device", "switch", "node", "rack"), (1, 2, 2, 2), 2), Random(3)
    told = []
    for _ in range(400):
        pool = Pool(shape, "pool")
        for slot in range(4):
            pool.set_node(slot, 0xF if rng.random() < 0.8 else rng.randrange(16))
        for level in range(4):
            pool.set_quota(1, level, rng.randrange(4 - level))
            pool.set_quota(2, level, rng.randrange(4 - level))
        for level in (0, 1, 2):
            if pool.promises.free_of(1, level) and (index := to_bind(pool, 1, level)) is not None:
                pool.bind(level, index, 1)
        for level in range(4):
            for index in range(16 // shape.size(level)):
                if pool.promises.free_of(2, level) and is_unbound(pool, level, index):
                    said, before = pool.costs_nobody(2, level, index), pool.shortfall()
                    pool.bind(level, index, 2)
                    assert said == all(now <= then for now, then in zip(pool.shortfall(), before, strict=True))
                    pool.unbind(level, index)
                    told.append(said)
    assert told.count(True) > 100
    assert told.count(False) > 100
