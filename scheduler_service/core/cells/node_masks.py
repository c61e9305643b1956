"""Bit masks of one node's devices: which cells a mask holds, how two masks differ, and the best devices or cell to pick.

The functions are looked up after the first time.
"""

from functools import lru_cache
from typing import NamedTuple

from scheduler_service.core.cells.closeness import DeviceTree, closest_devices, device_tree
from scheduler_service.core.cells.shape import KNOWN, Shape, cell_mask
from scheduler_service.core.model.values import Mask, mask_of


class Part(NamedTuple):
    """A cell inside a node."""

    level: int
    cell: int
    """Its number among those of its level in the node."""
    mask: Mask


@lru_cache(maxsize=KNOWN)
def whole_cells(shape: Shape, mask: Mask) -> tuple[tuple[int, ...], ...]:
    """For each level up to the node's, the cells that the mask holds all of, without those inside a larger one of these.

    >>> whole_cells(Shape(("device", "switch", "node"), (1, 2, 2), 2), 0b1101)
    ((0,), (1,), ())
    """
    found: list[tuple[int, ...]] = []
    cells = [i for i in range(shape.devices) if mask >> i & 1]
    for level in range(shape.node):
        fan, inside = shape.fan[level + 1], set(cells)
        above = [i // fan for i in cells if i % fan == 0 and inside.issuperset(range(i, i + fan))]
        found.append(tuple(i for i in cells if i // fan not in above))
        cells = above
    return (*found, tuple(cells))


@lru_cache(maxsize=KNOWN)
def parts(shape: Shape, mask: Mask) -> tuple[Part, ...]:
    """The cells of `whole_cells` in one sequence, the smallest first."""
    return tuple(
        Part(level, index, cell_mask(shape, level, index))
        for level, cells in enumerate(whole_cells(shape, mask))
        for index in cells
    )


@lru_cache(maxsize=KNOWN)
def change(shape: Shape, old: Mask, new: Mask) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """The parts that go and those that come as the mask changes."""
    before, after = parts(shape, old), parts(shape, new)
    return tuple(part for part in before if part not in after), tuple(part for part in after if part not in before)


@lru_cache(maxsize=KNOWN)
def touching(shape: Shape, outer: int, index: int, level: int, avoid: Mask) -> tuple[tuple[int, int], ...]:
    """The cells of a level inside a larger one of the same node: (leaves of `avoid` inside, index), the fewest first."""
    fan = shape.size(outer) // shape.size(level)
    cells = range(index * fan, (index + 1) * fan)
    return tuple(sorted(((cell_mask(shape, level, cell) & avoid).bit_count(), cell) for cell in cells))


@lru_cache(maxsize=KNOWN)
def height_of(shape: Shape, mask: Mask) -> int:
    """The level of the smallest cell around these positions of a node."""
    first, last = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
    return next(level for level in range(shape.node + 1) if first // shape.size(level) == last // shape.size(level))


@lru_cache(maxsize=KNOWN)
def pick(shape: Shape, mask: Mask, n: int, avoid: tuple[Mask, ...] = ()) -> Mask | None:
    """`n` leaves of the mask with the lowest common ancestor possible, or None.

    They are in the cell that touches least of `avoid`, and of that least of its last masks; then in the one that fits best
    (`_Fit`). Inside, they are chosen as on sites without virtual clusters, with as few leaves to avoid as possible.
    """
    if n < 1:
        return 0
    for level in range(shape.node + 1):
        best: tuple[_Fit, Mask] | None = None
        for index in range(shape.devices // shape.size(level)):
            inside = mask & cell_mask(shape, level, index)
            if inside.bit_count() >= n:
                chosen = _sparing(shape, inside, n, avoid)
                found = _rate_fit(shape, mask, level, index, chosen, avoid), chosen
                best = found if best is None else min(best, found)
        if best is not None:
            return best[1]
    return None


@lru_cache(maxsize=KNOWN)
def pick_cell(shape: Shape, mask: Mask, level: int, avoid: tuple[Mask, ...] = ()) -> Mask | None:
    """A cell of the level that is wholly in the mask: the one that touches least of `avoid`, and of that least of its last
    masks; then the one that fits best (`_Fit`)."""
    best: tuple[_Fit, Mask] | None = None
    for index in range(shape.devices // shape.size(level)):
        cell = cell_mask(shape, level, index)
        if cell & ~mask == 0:
            found = _rate_fit(shape, mask, level, index, cell, avoid), cell
            best = found if best is None else min(best, found)
    return None if best is None else best[1]


class _Fit(NamedTuple):
    """How good it is to take leaves in a cell: the least is best, as with `closeness.Key`."""

    touching: int
    """Number of leaves that are to be avoided."""
    layers: list[int]
    """Number of these in each mask, the last mask first."""
    broken: list[bool]
    """For each cell around it, the node first: whether the mask has all of it, and a part is taken."""
    others: list[int]
    """How many leaves of the mask these have."""
    cell: int
    """Its number."""


def _rate_fit(shape: Shape, mask: Mask, level: int, index: int, chosen: Mask, avoid: tuple[Mask, ...]) -> _Fit:
    touched = [(chosen & each).bit_count() for each in reversed(avoid)]
    first = index * shape.size(level)
    around = [cell_mask(shape, at, first // shape.size(at)) for at in range(shape.node, level - 1, -1)]
    broken = [cell & ~mask == 0 and cell != chosen for cell in around]
    return _Fit(sum(touched), touched, broken, [(cell & mask).bit_count() for cell in around], index)


def _sparing(shape: Shape, inside: Mask, n: int, avoid: tuple[Mask, ...]) -> Mask:
    """`n` of these leaves: first those that are not to be avoided, then those of the first mask to avoid, and so on."""
    clear = inside
    for each in avoid:
        clear &= ~each
    chosen: Mask = 0
    for each in (clear, *(inside & each for each in avoid)):
        chosen |= _fill(shape, each & ~chosen, min(n - chosen.bit_count(), (each & ~chosen).bit_count()))
    return chosen


def _fill(shape: Shape, mask: Mask, n: int) -> Mask:
    """The best `n` leaves of the mask, as they are chosen on sites without virtual clusters."""
    return mask_of(closest_devices(_tree(shape), mask, n))


@lru_cache(maxsize=256)
def _tree(shape: Shape) -> DeviceTree:
    """The device tree of a node of this shape."""
    inner = range(shape.node - 1, 0, -1)
    paths = tuple(tuple(leaf // shape.size(level) for level in inner) for leaf in range(shape.devices))
    return device_tree(tuple(shape.levels[level] for level in inner), paths, (None,) * shape.devices)
