"""Which nodes and which devices of them tasks get: the closest ones, and among these such as leave larger idle groups whole.

Both are chosen by the same key (`core.cells.closeness`); of nodes that are equally good, the first. A gang goes to one node if
it can. Else each of its tasks goes to the first of the nodes where its devices are closest, so that the gang is on few nodes.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.cells.closeness import Choice, choices, closest_devices
from scheduler_service.core.model.values import Mask, Vector, add, fits, mask_of, sub
from scheduler_service.core.state.resources.node_bits import bits_of
from scheduler_service.core.state.resources.node_bits import mask_of as mask_of_nodes
from scheduler_service.core.state.resources.packing import largest_first, pack
from scheduler_service.core.state.resources.suitable_nodes import Suitable
from scheduler_service.core.state.state import State

_LOOKED_AT = 4
"""Nodes that are looked at one by one: with more of them numpy is faster."""

_Distance = tuple[bool, int]
"""The first two values of a key: what is decided before everything else."""


def closest_node(state: State, need: Vector, among: Suitable | None = None) -> int | None:
    """The best node that is open and has `need` free; `among` these, or all. A task without devices gets the first."""
    free, devices = state.free_resources, need[2]
    if not devices:
        return free.first_fit(need, among)
    if free.kept:
        return best_of(state, devices, free.fitting(need, among))
    may = free.nodes_with_free(devices, among)
    if not may:
        return None
    left = _LOOKED_AT
    for _, bits in state.idle_groups.best_first(devices, may):
        while bits:
            lowest = bits & -bits
            node = lowest.bit_length() - 1
            if fits(need, free.free(node)):
                return node
            if left == 0:
                return best_of(state, devices, free.fitting(need, among))
            bits ^= lowest
            left -= 1
    return None


def best_of(state: State, devices: int, bits: int) -> int | None:
    """The best of these nodes for a task (bit i is node i), all of which have room for it; None: there are none."""
    if devices:
        bits = next((best for _, best in state.idle_groups.best_first(devices, bits)), 0)
    return (bits & -bits).bit_length() - 1 if bits else None


def nearest_of(state: State, devices: int, nodes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Those of the nodes on which the devices of a task are as close as on any of them."""
    _, bits = next(_by_distance(state, devices, bits_of(nodes) & ~1), (None, 0))
    return mask_of_nodes(bits, len(nodes))


def pack_closely(state: State, needs: Sequence[Vector], offered: NDArray[np.int64]) -> list[int] | None:
    """A node for each task of a job; None: there is no room. `offered` (3, nodes + 1) is what is free by node, as
    `FreeResources.offered_resources` gives it; it may be changed. Finds room wherever `pack` does."""
    total = reduce(add, needs)
    if not total.devices:
        return pack(needs, offered)
    room = (offered[2] >= total.devices) & (offered[0] >= total.cpu_milli) & (offered[1] >= total.memory_mib)
    node = best_of(state, total.devices, bits_of(room) & ~1)
    if node is not None:
        return [node] * len(needs)
    return None if len(needs) == 1 else _pack_over_nodes(state, needs, offered.copy()) or pack(needs, offered)


def devices_for(state: State, nodes: Sequence[int], needs: Sequence[Vector]) -> list[tuple[int, ...]]:
    """Idle devices for each task, a node of which is given. The tasks of a node get devices that are close to each other,
    unless those of a task would be less close for that."""
    found: list[tuple[int, ...]] = [()] * len(needs)
    ranks = sorted(range(len(nodes)), key=nodes.__getitem__)
    for node, on in groupby(ranks, key=nodes.__getitem__):
        here = list(on)
        idle, rest, tree = state.idle_devices.get(node, 0), sum(needs[rank].devices for rank in here), state.device_tree(node)
        for rank in here:
            count = needs[rank].devices
            found[rank] = closest_devices(tree, idle, count)
            if count < rest and idle.bit_count() >= rest:
                together = choices(tree, mask_of(closest_devices(tree, idle, rest))).by_count[count]
                if _distance(together) <= _distance(choices(tree, idle).by_count[count]):
                    found[rank] = together.devices
            idle, rest = idle & ~mask_of(found[rank]), rest - count
    return found


def pick_devices(state: State, node: int, count: int, taken: Mask = 0) -> tuple[int, ...]:
    """The best `count` idle devices of the node that are not in the mask `taken`; as many as there are, if they are fewer."""
    return closest_devices(state.device_tree(node), state.idle_devices.get(node, 0) & ~taken, count) if count else ()


def _pack_over_nodes(state: State, needs: Sequence[Vector], offered: NDArray[np.int64]) -> list[int] | None:
    """The largest task first, each on the first of the nodes that have room and where its devices are closest."""
    nodes, idle = [0] * len(needs), dict[int, Mask]()
    before: Vector | None = None
    near: list[tuple[_Distance, int]] = []
    for i in largest_first(needs):
        need = needs[i]
        if need != before:
            room = (offered[2] >= need.devices) & (offered[0] >= need.cpu_milli) & (offered[1] >= need.memory_mib)
            near, before = _nodes_by_distance(state, need.devices, bits_of(room) & ~1, idle), need
        bits = near[0][1] if near else 0
        if not bits:
            return None
        node = nodes[i] = (bits & -bits).bit_length() - 1
        left = sub(Vector(*offered[:, node].tolist()), need)
        offered[:, node] = left
        tree, before_it = state.device_tree(node), idle.get(node, state.idle_devices.get(node, 0))
        idle[node] = before_it & ~mask_of(closest_devices(tree, before_it, need.devices))
        moved = [(distance, others & ~(1 << node)) for distance, others in near]
        if fits(need, left):
            moved.append(
                (_distance(choices(tree, idle[node]).by_count[need.devices]) if need.devices else (False, 0), 1 << node)
            )
        near = _merge_equal(moved)
    return nodes


def _nodes_by_distance(state: State, devices: int, room: int, idle: dict[int, Mask]) -> list[tuple[_Distance, int]]:
    """The nodes that have room for a task, by how close its devices are there, the closest first. `idle`: what is left of the
    nodes of other tasks of its job."""
    if not devices:
        return [((False, 0), room)]
    used = [node for node in idle if room >> node & 1]
    untouched = room & ~sum(1 << node for node in used)
    near = list(_by_distance(state, devices, untouched))
    for node in used:
        near.append((_distance(choices(state.device_tree(node), idle[node]).by_count[devices]), 1 << node))
    return _merge_equal(near)


def _merge_equal(near: list[tuple[_Distance, int]]) -> list[tuple[_Distance, int]]:
    merged: dict[_Distance, int] = {}
    for distance, bits in near:
        if bits:
            merged[distance] = merged.get(distance, 0) | bits
    return sorted(merged.items())


def _by_distance(state: State, devices: int, bits: int) -> Iterator[tuple[_Distance, int]]:
    """These nodes, by how close the devices of a task are there, the closest first."""
    best_first = state.idle_groups.best_first(devices, bits)
    for distance, alike in groupby(best_first, key=lambda found: found[0][:2]):
        yield distance, reduce(lambda a, b: a | b, (bits for _, bits in alike))


def _distance(choice: Choice) -> _Distance:
    return choice.key[:2]
