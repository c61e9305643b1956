"""The free lists, which never split or merge, against Algorithm 1 as printed, which does."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.shape import Shape
from tests.core.cells import P100, Algorithm1, free_cells, shapes, to_bind

LEVELS = ("device", "switch", "socket", "node", "pod")


@given(st.data())
def test_the_lists_and_the_choices_are_those_of_algorithm_1(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    tops = range(data.draw(st.integers(1, 3)))
    pool, printed = Pool(shape, "pool"), Algorithm1(shape, tops)
    for slot in range(len(tops) * shape.size(shape.top) // shape.devices):
        pool.set_node(slot, (1 << shape.devices) - 1)
    begun = pool.snapshot()
    held: list[tuple[int, int]] = []
    for step in data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99)), max_size=25)):
        if step[0] <= shape.top:
            level = step[0]
            cell, chosen = printed.allocate_cell(level), to_bind(pool, 1, level)
            assert chosen == cell
            if cell is not None:
                pool.bind(level, cell, 1)
                held.append((level, cell))
        elif held:
            released = held.pop(step[1] % len(held))
            printed.release_cell(*released)
            pool.unbind(*released)
        assert [{index for _, index in free_cells(pool, level)} for level in range(len(pool.shape.fan))] == printed.free_cells
    for released in held:
        pool.unbind(*released)
    assert pool.snapshot() == begun


def pod_of_figure_4() -> Pool:
    shape = Shape(LEVELS, (*P100.fan, 4), 3)
    pool = Pool(shape, "pod")
    for slot in range(4):
        pool.set_node(slot, 0xFF)
    for vc, cells in {1: {2: 1, 1: 1, 0: 1}, 2: {2: 1, 1: 1, 0: 1}, 3: {3: 2, 1: 1}}.items():
        for level, count in cells.items():
            pool.set_quota(vc, level, count)
    return pool


@given(st.permutations([(1, 2), (1, 1), (1, 0), (2, 2), (2, 1), (2, 0), (3, 3), (3, 3), (3, 1)]))
def test_every_order_of_figure_4s_requests_succeeds(requests: list[tuple[int, int]]) -> None:
    """Scenario 14."""
    pool = pod_of_figure_4()
    assert pool.holds()
    for vc, level in requests:
        cell = to_bind(pool, vc, level)
        assert cell is not None
        pool.bind(level, cell, vc)
        assert pool.holds()
    assert [len(pool.bound_of(3, level)) for level in range(5)] == [0, 1, 0, 2, 0]
    assert pool.promises.claims == [0] * 5


def test_as_figure_4_is_drawn() -> None:
    """Nodes 0 and 1 hold the small cells of all three, and C's nodes are whole ones."""
    pool = pod_of_figure_4()
    for vc, level in [(1, 2), (1, 1), (1, 0), (2, 0), (2, 2), (2, 1), (3, 1), (3, 3), (3, 3)]:
        cell = to_bind(pool, vc, level)
        assert cell is not None
        pool.bind(level, cell, vc)
    assert pool.bound == [{6: 1, 7: 2}, {2: 1, 6: 2, 7: 3}, {0: 1, 2: 2}, {2: 3, 3: 3}, {}]
    assert [free_cells(pool, level) for level in range(5)] == [[], [], [], [], []]
