"""Masks of one node: whole cells, and the leaves that are picked, against all that could have been."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.cells.closeness import closest_devices, device_tree
from scheduler_service.core.cells.node_masks import height_of, parts, pick, pick_cell, touching, whole_cells
from scheduler_service.core.cells.shape import Shape, cell_mask
from scheduler_service.core.model.values import mask_of
from tests.core.cells import P100

DGX2 = Shape(("device", "switch", "socket", "node"), (1, 2, 4, 2), 3)
SHAPES = st.sampled_from([P100, Shape(("device", "a", "node"), (1, 3, 3), 2), Shape(("device", "node"), (1, 5), 1)])


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Shape, int, int]:
    shape = draw(SHAPES)
    masks = st.integers(0, (1 << shape.devices) - 1)
    return shape, draw(masks), draw(masks)


def cells(shape: Shape) -> list[tuple[int, int, int]]:
    return [
        (level, i, cell_mask(shape, level, i))
        for level in range(shape.node + 1)
        for i in range(shape.devices // shape.size(level))
    ]


def ancestor(shape: Shape, mask: int) -> int:
    """The level of the smallest cell around it."""
    return min(level for level, _, cell in cells(shape) if mask & ~cell == 0)


@given(nodes())
def test_whole_cells_are_those_whose_parent_is_not(node: tuple[Shape, int, int]) -> None:
    shape, mask, _ = node
    full = {(level, i) for level, i, cell in cells(shape) if cell & ~mask == 0}
    highest = {(k, i) for k, i in full if k == shape.node or (k + 1, i // shape.fan[k + 1]) not in full}
    assert {(k, i) for k, inside in enumerate(whole_cells(shape, mask)) for i in inside} == highest
    assert sum(part.mask for part in parts(shape, mask)) == mask


@given(nodes(), st.integers(1, 9))
def test_what_is_picked_has_the_lowest_ancestor_and_spares_what_it_should(node: tuple[Shape, int, int], n: int) -> None:
    shape, mask, avoid = node
    found = pick(shape, mask, n, (avoid,))
    all_ = [sum(chosen) for chosen in combinations([1 << i for i in range(shape.devices) if mask >> i & 1], n)]
    if found is None:
        assert not all_
        return
    assert found in all_
    lowest = min(ancestor(shape, one) for one in all_)
    assert ancestor(shape, found) == lowest
    equals = [one for one in all_ if ancestor(shape, one) == lowest]
    assert (found & avoid).bit_count() == min((one & avoid).bit_count() for one in equals)


@given(nodes(), st.integers(1, 9), st.data())
def test_of_what_is_to_be_spared_the_last_is_spared_most(node: tuple[Shape, int, int], n: int, data: st.DataObject) -> None:
    shape, mask, avoid = node
    split = data.draw(st.integers(0, (1 << shape.devices) - 1))
    layers = (avoid & split, avoid & ~split)
    found, at_once = pick(shape, mask, n, layers), pick(shape, mask, n, (avoid,))
    assert (found is None) == (at_once is None)
    if found is None:
        return
    all_ = [sum(chosen) for chosen in combinations([1 << i for i in range(shape.devices) if mask >> i & 1], n)]
    lowest = min(ancestor(shape, one) for one in all_)
    fewest = min(((one & avoid).bit_count(), (one & layers[1]).bit_count()) for one in all_ if ancestor(shape, one) == lowest)
    assert ancestor(shape, found) == lowest
    assert ((found & avoid).bit_count(), (found & layers[1]).bit_count()) == fewest


@given(nodes(), st.integers(0, 3))
def test_a_cell_that_is_picked_is_whole_and_spares_what_it_can(node: tuple[Shape, int, int], level: int) -> None:
    shape, mask, avoid = node
    level = min(level, shape.node)
    candidates = [cell for k, _, cell in cells(shape) if k == level and cell & ~mask == 0]
    found = pick_cell(shape, mask, level, (avoid,))
    if found is None:
        assert not candidates
    else:
        assert found in candidates
        assert (found & avoid).bit_count() == min((cell & avoid).bit_count() for cell in candidates)


@pytest.mark.parametrize("shape", [P100, Shape(("device", "a", "node"), (1, 3, 3), 2), Shape(("device", "node"), (1, 5), 1)])
def test_nothing_to_avoid_the_leaves_are_those_that_a_site_without_virtual_clusters_would_choose(shape: Shape) -> None:
    """All sets of idle devices of a node."""
    inner = range(shape.node - 1, 0, -1)
    paths = tuple(tuple(leaf // shape.size(level) for level in inner) for leaf in range(shape.devices))
    tree = device_tree(tuple(shape.levels[level] for level in inner), paths, (None,) * shape.devices)
    for idle in range(1, 1 << shape.devices):
        for n in range(1, idle.bit_count() + 1):
            assert pick(shape, idle, n) == mask_of(closest_devices(tree, idle, n))


def test_a_cell_is_taken_from_the_fullest_parent() -> None:
    assert pick_cell(P100, 0b1111_1100, 1) == 0b1100
    assert pick_cell(P100, 0b1111_1100, 1, avoid=(0b0100,)) == 0b11_0000
    assert pick_cell(P100, 0b1111_1111, 3) == 0b1111_1111


def test_the_tightest_of_equals_and_there_the_smallest_first() -> None:
    assert pick(P100, 0b1111_1110, 1) == 0b10
    assert pick(P100, 0b1111_1110, 3) == 0b1110
    assert pick(P100, 0b1111_1100, 3) == 0b111_0000  # switch 1 and another would have a node in common alone
    assert pick(P100, 0b1111_0111, 6) == 0b1111_0011  # and no whole switch would be broken up
    assert pick(P100, 0b0111_1011, 4, avoid=(0b1,)) == 0b0011_1010


def test_eight_of_sixteen_are_the_aligned_half() -> None:
    """Scenario 1."""
    assert pick(DGX2, 0xFFFF, 1) == 1
    assert pick(DGX2, 0xFFFE, 1) == 2
    assert pick(DGX2, 0xFFFC, 8) == 0xFF00


def test_a_gang_of_seven_and_five() -> None:
    """Scenario 5."""
    assert pick(P100, 0xFF, 7) == 0x7F
    assert pick(P100, 0xFF, 5) == 0x1F


def test_four_on_one_socket_when_another_has_begun() -> None:
    """Scenario 11."""
    assert pick(P100, 0xFE, 4) == 0xF0
    assert pick_cell(P100, 0xFE, 2) == 0xF0


def test_the_parts_of_a_cell_by_what_they_touch() -> None:
    assert touching(P100, 3, 0, 2, 0b0000_0001) == ((0, 1), (1, 0))
    assert touching(P100, 3, 0, 2, 0b0001_0011) == ((1, 1), (2, 0))
    assert touching(P100, 2, 1, 0, 0b0001_0000) == ((0, 5), (0, 6), (0, 7), (1, 4))


@pytest.mark.parametrize(("mask", "height"), [(0b1, 0), (0b1100, 1), (0b110, 2), (0b1001_0000, 2), (0b1_1000, 3), (0xFF, 3)])
def test_the_smallest_cell_around_some_positions(mask: int, height: int) -> None:
    assert height_of(P100, mask) == height
