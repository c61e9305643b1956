"""Queries about one cell of a pool, or about the cells around some leaves."""

from collections.abc import Collection, Iterable, Iterator

from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.cells.shape import leaves as leaves_of
from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask


def unbound(pool: Pool, owner: Owner, level: int) -> int:
    """How many more cells of the level the owner may have bound; negative where it has more than it owns."""
    return pool.promises.unbound.get(owner, pool.promises.none)[level]


def leaves_unbound(pool: Pool, owner: Owner) -> int:
    """How many leaves are in all the cells that the owner may still have bound."""
    levels = range(len(pool.shape.fan))
    return sum([pool.promises.free_of(owner, level) * pool.shape.size(level) for level in levels])


def is_unbound(pool: Pool, level: int, index: int, but: Collection[Owner] = ()) -> bool:
    """Whether neither the cell, nor a part of it, nor a cell around it is bound, except to these owners."""
    for slot, mask in pool.leaves(level, index):
        if mask & pool.bound_at(slot):
            for bound, whose in pool.units_at(slot).items():
                if mask & bound and whose not in but:
                    return False
    return True


def owned_positions(pool: Pool, owner: Owner, slot: int) -> Mask:
    """The positions of the node that are in cells bound to the owner."""
    mine = 0
    for mask, whose in pool.units_at(slot).items():
        if whose == owner:
            mine |= mask
    return mine


def binding_over(pool: Pool, slot: int, position: int) -> tuple[int, int] | None:
    """(level, index) of the bound cell that has this leaf inside."""
    leaf = slot * pool.shape.devices + position
    for level, size in enumerate(pool.sizes):
        if leaf // size in pool.bound[level]:
            return level, leaf // size
    return None


def unused_around(pool: Pool, slot: int, mask: Mask) -> list[tuple[int, int]]:
    """Bound cells, (level, index), around these positions in which no guaranteed run is, and for which nothing is kept."""
    found: list[tuple[int, int]] = []
    while mask:
        lowest = mask & -mask
        around = binding_over(pool, slot, lowest.bit_length() - 1)
        mask ^= lowest
        if around is not None:
            leaves = list(leaves_of(pool.shape, *around))
            if not any(inside & pool.held_leaves(at)[0] for at, inside in leaves):
                found.append(around)
            mask &= ~next(inside for at, inside in leaves if at == slot)
    return found


def free_around(pool: Pool, owner: Owner, slot: int, position: int) -> Iterator[tuple[int, int]]:
    """The cells around this leaf, (level, index), that could be bound to the owner as they are, at no other VC's cost; the
    smallest first."""
    for level in range(len(pool.shape.fan)):
        if pool.promises.free_of(owner, level):
            index = (slot * pool.shape.devices + position) // pool.shape.size(level)
            if not is_unbound(pool, level, index):
                return  # nor is any larger one
            if pool.costs_nobody(owner, level, index):
                yield level, index


def overlap(shape: Shape, one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether these cells, (level, index), are the same, or one is inside the other."""
    small, large = sorted((one, other))
    return small[1] // (shape.size(large[0]) // shape.size(small[0])) == large[1]


def free_cells_with_pins(shape: Shape, tops: int, pinned: Iterable[tuple[int, int]]) -> dict[int, int]:
    """How many free cells of each level a pool has with `tops` cells of the highest level, all healthy, in which only these are
    bound."""
    pool, roots = Pool(shape, ""), set()
    nodes = shape.size(shape.top) // shape.devices
    for level, index in pinned:
        root = index * shape.size(level) // shape.size(shape.top)
        if root not in roots:
            roots.add(root)
            for slot in range(root * nodes, (root + 1) * nodes):
                pool.set_node(slot, (1 << shape.devices) - 1)
        pool.bind(level, index, Owner(0))
    free = dict(enumerate(pool.counts))
    free[shape.top] += tops - len(roots)
    return free
