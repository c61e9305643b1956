"""Which devices of a node a task gets: the closest idle ones, and among these such as break up the fewest larger idle groups.

Devices are close if a small group has them all: a switch, a socket, devices that NVLink connects; the node is the largest
group. All sets of idle devices are compared by a `Key`, and the least is chosen. It follows from the tree by dynamic
programming: what it costs to take k devices of a group is the least sum over its parts, and the terms of the sum are packed
into one integer, the most important on top. A node of 8 devices costs some 100 additions the first time; the same few sets of
idle devices come again and again, and are looked up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from scheduler_service.core.model.values import Mask, first_of

NVLINK = "NVLink domain"
NODE = "node"

_FIELD = 12
"""Bits of a term: no node has more than 1,024 devices."""
_KNOWN = 65536
"""The most sets of idle devices of one tree that are remembered."""


class Key(NamedTuple):
    """How good a set of devices is: the least is best. Counts are by level, from the node inwards."""

    apart: bool
    """They are several, and no NVLink domain has them all."""
    height: int
    """Height of the smallest group that has them all: 0 is a device by itself, 1 a group of the innermost level."""
    broken: tuple[int, ...]
    """Groups that were wholly idle, of which a part is taken."""
    touched: tuple[int, ...]
    """Groups in which devices are taken."""
    idle: tuple[int, ...]
    """Idle devices of these groups before: the fewer, the better they fit."""


class Choice(NamedTuple):
    """The best devices of a node for one task."""

    key: Key
    devices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Offer:
    """How good the best idle devices of a node are, by their number, from 0 on. Compared by identity: nodes that offer the same
    have mostly the same object."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, eq=False)
class Choices:
    """The best idle devices of a node, by their number, from 0 on."""

    by_count: tuple[Choice, ...]
    offer: Offer


@dataclass(frozen=True)
class _Group:
    """Devices that are close to each other, as a node of the tree."""

    mask: Mask
    level: int
    """From the node (0) inwards."""
    name: str
    linked: bool
    """An NVLink domain has them all."""
    parts: tuple["_Group", ...]
    singles: Mask
    """Its devices that are in none of its parts."""


@dataclass(frozen=True, eq=False)
class DeviceTree:
    """How close the devices of a node are to each other. Made by `device_tree`, once for all nodes that are alike."""

    root: _Group
    levels: int
    count: int
    """Number of devices."""
    crossing: tuple[Mask, ...]
    """NVLink domains that are no groups, because they have parts of several."""
    known: dict[Mask, Choices] = field(default_factory=dict, repr=False)


Paths = tuple[tuple[int, ...], ...]
Links = tuple[int | None, ...]


@lru_cache(maxsize=1024)
def device_tree(levels: tuple[str, ...], paths: Paths, links: Links) -> DeviceTree:
    """The tree of devices that have these places in the levels, outermost first, and these NVLink numbers.

    >>> tree = device_tree(("socket", "switch"), ((0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)), (None,) * 8)
    >>> closest_devices(tree, 0b11111010, 2), closest_devices(tree, 0b11111010, 1), closest_devices(tree, 0b11111010, 3)
    ((4, 5), (1,), (4, 5, 6))
    """
    depths: dict[Mask, tuple[int, str]] = {(1 << len(paths)) - 1: (0, NODE)}
    for depth, name in enumerate(levels, 1):
        cells: dict[tuple[int, ...], Mask] = {}
        for index, path in enumerate(paths):
            if len(path) >= depth:
                cells[path[:depth]] = cells.get(path[:depth], 0) | 1 << index
        depths |= dict.fromkeys(cells.values(), (2 * depth, name))
    domains: dict[int, Mask] = {}
    for index, link in enumerate(links):
        if link is not None:
            domains[link] = domains.get(link, 0) | 1 << index
    linked = tuple(domains.values())
    crossing = tuple(mask for mask in linked if any(mask & cell not in (0, mask, cell) for cell in depths))
    for mask in linked:
        if mask not in depths and mask not in crossing:
            depths[mask] = 1 + max(depth for cell, (depth, _) in depths.items() if mask & ~cell == 0), NVLINK
    groups = {mask: at for mask, at in depths.items() if mask & (mask - 1)}
    number = {depth: level for level, depth in enumerate(sorted({depth for depth, _ in groups.values()}))}

    def group(mask: Mask, others: Sequence[Mask]) -> _Group:
        inside = [other for other in others if other & ~mask == 0 and other != mask]
        parts = [part for part in inside if not any(part & ~other == 0 and part != other for other in inside)]
        depth, name = depths[mask]
        singles = mask
        for part in parts:
            singles &= ~part
        has_link = any(mask & ~domain == 0 for domain in linked)
        made = tuple(group(part, inside) for part in sorted(parts, key=lambda part: part & -part))
        return _Group(mask, number.get(depth, 0), name, has_link, made, singles)

    return DeviceTree(group((1 << len(paths)) - 1, list(groups)), max(1, len(number)), len(paths), crossing)


def closest_devices(tree: DeviceTree, idle: Mask, count: int) -> tuple[int, ...]:
    """The best `count` of these idle devices; all of them if they are fewer."""
    best = (tree.known.get(idle) or choices(tree, idle)).by_count
    return best[count].devices if count < len(best) else first_of(idle, count)


def choices(tree: DeviceTree, idle: Mask) -> Choices:
    """The best of these idle devices, for each number of devices."""
    found = tree.known.get(idle)
    if found is None:
        if len(tree.known) == _KNOWN:
            tree.known.clear()
        found = tree.known[idle] = _choices(tree, idle)
    return found


def closeness(tree: DeviceTree, devices: Mask) -> tuple[str, bool]:
    """The name of the smallest group that has these devices (`node` at most), and whether one NVLink domain does."""
    group = _smallest_group_around(tree, devices)
    return group.name, _is_linked(tree, group, devices)


def distance(tree: DeviceTree, devices: Mask) -> tuple[bool, int]:
    """The first two values of the key of these devices, which several have: less is closer."""
    group = _smallest_group_around(tree, devices)
    return not _is_linked(tree, group, devices), tree.levels - group.level


def _smallest_group_around(tree: DeviceTree, devices: Mask) -> _Group:
    """The smallest group that has these."""
    at = tree.root
    while (inner := next((part for part in at.parts if devices & ~part.mask == 0), None)) is not None:
        at = inner
    return at


def _is_linked(tree: DeviceTree, group: _Group, devices: Mask) -> bool:
    return group.linked or any(devices & ~domain == 0 for domain in tree.crossing)


# ---- the search ----------------------------------------------------------------------------------------------------------

_Costs = list[int]
"""Least cost of taking devices, by their number. Its lowest bits tell which devices."""
_Best = list[tuple[bool, int, int] | None]
"""Apart, height and cost of the best devices found so far, by their number."""


class _Search(NamedTuple):
    tree: DeviceTree
    idle: Mask
    available: Mask
    """The idle devices that may be taken."""
    linked: bool
    """Whether one NVLink domain has all of these."""
    best: _Best


def _choices(tree: DeviceTree, idle: Mask) -> Choices:
    idle &= (1 << tree.count) - 1
    best: _Best = [None] * (idle.bit_count() + 1)
    around = [0] * len(best)
    _costs_of_taking(_Search(tree, idle, idle, False, best), tree.root, around)
    for domain in tree.crossing:
        _costs_of_taking(_Search(tree, idle, idle & domain, True, best), tree.root, around)
    made = [Choice(Key(False, 0, (), (), ()), ())]
    made += (_decode(tree, *found) for found in best[1:] if found is not None)
    return Choices(tuple(made), _offer(tuple(choice.key for choice in made)))


@lru_cache(maxsize=_KNOWN)
def _offer(keys: tuple[Key, ...]) -> Offer:
    return Offer(keys)


def _costs_of_taking(search: _Search, group: _Group, around: _Costs) -> _Costs:
    """Costs of taking devices of the group, inside the group. `around`: the costs in the groups around it. Notes what is best
    if this is the smallest group that has them all."""
    own = _of_group(search, group)
    outside = [a + b for a, b in zip(own, around, strict=False)]
    costs = _of_singles(search, group.singles)
    for part in group.parts:
        if search.available & part.mask:
            costs = _sum(costs, _costs_of_taking(search, part, outside))
    costs = [a + b for a, b in zip(costs, own, strict=True)]
    best, height = search.best, search.tree.levels - group.level
    for count in range(1, len(costs)):
        apart = count > 1 and not (group.linked or search.linked)
        found = apart, height if count > 1 else 0, costs[count] + around[count]
        known = best[count]
        if known is None or found < known:
            best[count] = found
    return costs


def _of_group(search: _Search, group: _Group) -> _Costs:
    """Costs that the group as a whole adds, by how many of its devices are taken."""
    tree, size = search.tree, group.mask.bit_count()
    idle = (search.idle & group.mask).bit_count()
    whole = _term(tree, 1, group.level, 1) + _term(tree, 2, group.level, idle)
    part = whole + (_term(tree, 0, group.level, 1) if idle == size else 0)
    count = (search.available & group.mask).bit_count()
    return [0, *(part if taken < size else whole for taken in range(1, count + 1))]


def _of_singles(search: _Search, singles: Mask) -> _Costs:
    """Costs of devices that are in no smaller group: all are equally good, and the first are taken."""
    costs, available = [0], search.available & singles
    for index in first_of(available, available.bit_count()):
        costs.append(costs[-1] - (1 << search.tree.count - 1 - index))
    return costs


def _sum(one: _Costs, other: _Costs) -> _Costs:
    """Costs of taking devices of both."""
    if len(one) == 1:
        return other
    costs: list[int | None] = [None] * (len(one) + len(other) - 1)
    for i, a in enumerate(one):
        for count, b in enumerate(other, i):
            known = costs[count]
            if known is None or a + b < known:
                costs[count] = a + b
    return costs  # type: ignore[return-value]  # each number of devices is a sum


# A cost is broken, touched and idle of each level, from the node inwards, in fields of one integer; less the devices, of which
# the first is the highest bit below the fields. So of two sets that are as good that with the first device costs less.


def _term(tree: DeviceTree, kind: int, level: int, amount: int) -> int:
    place = 3 * tree.levels - 1 - (kind * tree.levels + level)
    return amount << place * _FIELD + tree.count


def _decode(tree: DeviceTree, apart: bool, height: int, cost: int) -> Choice:
    reversed_mask = -cost & (1 << tree.count) - 1
    terms = cost + reversed_mask >> tree.count
    fields = [terms >> place * _FIELD & (1 << _FIELD) - 1 for place in reversed(range(3 * tree.levels))]
    levels = tree.levels
    key = Key(apart, height, tuple(fields[:levels]), tuple(fields[levels : 2 * levels]), tuple(fields[2 * levels :]))
    return Choice(key, tuple(index for index in range(tree.count) if reversed_mask >> tree.count - 1 - index & 1))
