"""A node as part of its pool: the tree of its devices, or of its CPUs, and the place of each of them in that tree."""

import re
from functools import lru_cache
from typing import NamedTuple

from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.model.values import Mask, Vector, first_of


class PoolPosition(NamedTuple):
    """A node's place in its pool."""

    pool: str
    slot: int
    order: tuple[int, ...]
    """The index of the device at each position of the tree; empty if they are the same."""
    share: Vector
    """The share of the node that goes with each of its devices, or with each of its CPUs if it has no devices."""


def positions(position: PoolPosition, devices: Mask) -> Mask:
    """The places in the tree of these devices."""
    return _permute(devices, position.order, inverse=False) if position.order else devices


def indices(position: PoolPosition, places: Mask) -> tuple[int, ...]:
    """The devices at these places of the tree, in order of their indices."""
    devices = _permute(places, position.order, inverse=True) if position.order else places
    return first_of(devices, devices.bit_count())


@lru_cache(maxsize=65536)
def _permute(mask: Mask, order: tuple[int, ...], inverse: bool) -> Mask:
    moved = 0
    for place, index in enumerate(order):
        source, target = (place, index) if inverse else (index, place)
        if mask >> source & 1:
            moved |= 1 << target
    return moved


# ---- the tree inside a node ----------------------------------------------------------------------------------------------


def cpus_of(capacity: Vector) -> int:
    """The number of leaves of a node without devices."""
    return max(1, capacity.cpu_milli // 1000)


def row_of(cpus: int) -> Shape:
    """The shape of a node without devices."""
    return Shape(("cpu", "node"), (1, cpus), 1)


@lru_cache(maxsize=1024)
def tree_of(levels: tuple[str, ...], paths: tuple[tuple[int, ...], ...]) -> tuple[Shape, tuple[int, ...]]:
    """The shape of a node whose devices have these paths, and which device is at which place. An irregular tree (the agent
    collapses what is odd) counts as flat."""
    order = tuple(sorted(range(len(paths)), key=lambda index: (paths[index], index)))
    fans: list[int] = []
    for depth in range(len(levels), -1, -1):
        children: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for index, path in enumerate(paths):
            below = path[: depth + 1] if depth < len(levels) else (*path, index)
            children.setdefault(path[:depth], set()).add(below)
        counts = {len(below) for below in children.values()}
        if len(counts) > 1 or any(len(path) != len(levels) for path in paths):
            return Shape(("device", "node"), (1, len(paths)), 1), ()
        fans.append(counts.pop())
    names = ("device", *reversed(levels), "node")
    identical = order == tuple(range(len(paths)))
    return Shape(names, (1, *fans), len(names) - 1), () if identical else order


def name_of(model: str, inner: Shape) -> str:
    """The name of a pool that the site has not named: the same for nodes that are alike, and for no others."""
    if not model:
        return f"cpu-{inner.devices}"
    slug = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "device"
    return f"{slug}-{'x'.join(str(fan) for fan in reversed(inner.fan[1:]))}"
