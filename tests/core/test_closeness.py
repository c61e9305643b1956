"""The closest devices against all sets that could have been chosen, on small nodes with any tree, any links, anything busy."""

from collections.abc import Iterator
from itertools import combinations

from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_service.core.cells.closeness import DeviceTree, choices, closeness, closest_devices, device_tree
from scheduler_service.core.model.values import mask_of

DGX = ((0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1))
Machine = tuple[tuple[str, ...], tuple[tuple[int, ...], ...], tuple[int | None, ...]]
Set = frozenset[int]


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """With cells of unequal sizes, in any order, and NVLink within cells, across them, or nowhere."""
    count = draw(st.integers(1, 7))
    levels = ("socket", "switch", "board")[: draw(st.integers(0, 3))]
    paths = tuple(tuple(draw(st.integers(0, 1)) for _ in levels) for _ in range(count))
    links = draw(
        st.sampled_from(
            [
                (None,) * count,
                (7,) * count,
                tuple(path[0] if path else 0 for path in paths),
                tuple(draw(st.sampled_from([None, 0, 1, 2])) for _ in range(count)),
            ]
        )
    )
    return levels, paths, links


def groups(machine: Machine) -> Iterator[tuple[int, Set]]:
    """(depth, devices) of each group of several devices, NVLink domains that lie inside a cell among them. Of cells with the
    same devices, the innermost."""
    levels, paths, _ = machine
    every = range(len(paths))
    found: dict[Set, float] = {frozenset(every): 0}
    for depth in range(1, len(levels) + 1):
        for prefix in {path[:depth] for path in paths}:
            found[frozenset(i for i in every if paths[i][:depth] == prefix)] = depth
    cells = dict(found)
    for domain in domains(machine):
        nested = all(domain <= cell or cell <= domain or not domain & cell for cell in cells)
        if nested and domain not in cells:
            found[domain] = max(depth for cell, depth in cells.items() if domain <= cell) + 0.5
    kept = {group: depth for group, depth in found.items() if len(group) > 1}
    depths = sorted(set(kept.values()))
    return ((depths.index(depth), group) for group, depth in kept.items())


def domains(machine: Machine) -> list[Set]:
    links = machine[2]
    return [frozenset(i for i, link in enumerate(links) if link == domain) for domain in set(links) - {None}]


def key(machine: Machine, idle: Set, chosen: Set) -> tuple[object, ...]:
    """Lower is better, as docs/devices.md has it: NVLink, the smallest cell, the larger idle groups that are broken up; then
    few groups, then such with little left, then the first devices."""
    by_depth: dict[int, list[Set]] = {}
    for depth, group in groups(machine):
        by_depth.setdefault(depth, []).append(group)
    levels = [by_depth[depth] for depth in sorted(by_depth)]
    apart = len(chosen) > 1 and not any(chosen <= domain for domain in domains(machine))
    around = max((depth for depth, group in groups(machine) if chosen <= group), default=0)
    height = len(levels) - around if len(chosen) > 1 else 0
    broken = [sum(group <= idle and bool(group & chosen) and not group <= chosen for group in level) for level in levels]
    touched = [sum(bool(group & chosen) for group in level) for level in levels]
    left = [sum(len(group & idle) for group in level if group & chosen) for level in levels]
    return apart, height, broken, touched, left, sorted(chosen)


@given(machines(), st.data())
@example((("socket", "switch"), DGX, (None,) * 8), None)
def test_no_other_set_would_have_been_better(machine: Machine, data: st.DataObject | None) -> None:
    tree = device_tree(*machine)
    every = range(len(machine[1]))
    masks = [0b11111010, 0b11110010] if data is None else [data.draw(st.integers(0, (1 << len(every)) - 1))]
    for mask in masks:
        idle = frozenset(i for i in every if mask >> i & 1)
        for count in range(1, len(idle) + 1):
            best = min((frozenset(chosen) for chosen in combinations(idle, count)), key=lambda one: key(machine, idle, one))
            assert closest_devices(tree, mask, count) == tuple(sorted(best))
        assert closest_devices(tree, mask, len(idle) + 1) == tuple(sorted(idle))


@given(machines(), st.data())
def test_keys_compare_nodes_as_they_compare_sets(machine: Machine, data: st.DataObject) -> None:
    """So that the node is chosen by what is best on it."""
    tree, full = device_tree(*machine), (1 << len(machine[1])) - 1
    one, other = (data.draw(st.integers(1, full)) for _ in range(2))
    for count in range(1, min(one.bit_count(), other.bit_count()) + 1):
        keys = []
        for mask in (one, other):
            idle = frozenset(i for i in range(len(machine[1])) if mask >> i & 1)
            keys.append(key(machine, idle, frozenset(closest_devices(tree, mask, count)))[:-1])
        found = [choices(tree, mask).by_count[count].key for mask in (one, other)]
        assert (found[0] < found[1]) is (keys[0] < keys[1])


def tree_of(links: tuple[int | None, ...] = (None,) * 8) -> DeviceTree:
    return device_tree(("socket", "switch"), DGX, links)


def test_two_of_a_switch_rather_than_the_first_two() -> None:
    assert closest_devices(tree_of(), 0b11111010, 2) == (4, 5)


def test_a_single_device_leaves_switches_and_sockets_whole() -> None:
    assert closest_devices(tree_of(), 0b11111101, 1) == (0,)
    assert closest_devices(tree_of(), 0b11111111, 1) == (0,)
    assert closest_devices(tree_of(), 0b00111111, 1) == (4,)


def test_nvlink_comes_before_switches() -> None:
    pairs_across_switches = (0, 1, 0, 1, None, None, None, None)
    assert closest_devices(tree_of(pairs_across_switches), 0b11111111, 2) == (0, 2)
    assert closest_devices(tree_of(pairs_across_switches), 0b11110111, 2) == (0, 2)
    assert closest_devices(tree_of(pairs_across_switches), 0b11111100, 2) == (2, 3)


def test_how_close_devices_are() -> None:
    tree = tree_of((0,) * 4 + (None,) * 4)
    assert closeness(tree, mask_of((0, 1))) == ("switch", True)
    assert closeness(tree, mask_of((0, 2))) == ("socket", True)
    assert closeness(tree, mask_of((4, 7))) == ("socket", False)
    assert closeness(tree, mask_of((3, 4))) == ("node", False)
