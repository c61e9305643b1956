"""Which physical cell a free virtual one is bound to, and where opportunistic work goes.

The two go opposite ways. The buddy takes the smallest free cell that suffices, and of these the first; opportunistic work
takes the last address of the largest, so that they meet as late as possible.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from scheduler_service.core.cells.free_lists import Free, key_of, used_and_index
from scheduler_service.core.cells.healthy_leaves import HealthyLeaves
from scheduler_service.core.cells.idle_index import IdleIndex
from scheduler_service.core.cells.node_masks import pick, touching
from scheduler_service.core.cells.promises import Balance, balance
from scheduler_service.core.cells.shape import Shape, cell_mask
from scheduler_service.core.cells.slots import Facts
from scheduler_service.core.model.values import Mask

_LOOKS = 64
"""How many parts of the free cells of a level are searched for one without opportunistic work, if each cell has some."""
_IN_CHOICE = 16
"""The most cells between which there is a choice, if each costs something: it is expensive to tell whose runs these are."""

Choose = Callable[[int, Sequence[int]], int]
"""Chooses one of the cells of a level; those with the fewest opportunistic leaves come first."""


def first(_level: int, cells: Sequence[int]) -> int:
    return cells[0]


def best(free: Free, spare: IdleIndex, now: Callable[[], Balance], level: int, choose: Choose = first) -> int | None:
    """A cell of the level without opportunistic leaves; otherwise the one that `choose` takes of the cells with the fewest,
    those in the smallest free cells first among equals. Cells up to the node are in the choice even if they have more such
    leaves than others, because what counts are the runs that have to leave. Of larger cells only those with the fewest are, as
    it takes long to look at their runs. Only cells that may be split are taken from: taking one cell of `level` leaves one
    fewer at each level above it up to the one that is split, so each of these levels must have one left over that no VC has a
    claim to."""
    found: list[_Cost] = []
    for outer in range(level, len(free.lists)):
        if outer > level and not now().left[outer]:
            break
        if free.counts[outer]:
            some = _cheapest(free, spare, outer, level)
            if not some[0][0]:
                return some[0][1]
            found += some
    if not found:
        return None
    found.sort(key=_leaves_used)
    cells = [cell for used, cell in found if level <= free.shape.node or used == found[0][0]]
    return choose(level, cells[:_IN_CHOICE])


_Cost = tuple[int, int]
"""Opportunistic leaves in a cell, and the cell."""


def _leaves_used(cost: _Cost) -> int:
    return cost[0]


def _cheapest(free: Free, spare: IdleIndex, outer: int, level: int) -> list[_Cost]:
    """Cells of `level` inside the free cells of `outer` with few opportunistic leaves, the fewest first; one if it has none."""
    cells = free.lists[outer]
    used, index = used_and_index(cells[0])
    if not used:
        return [(0, index * (free.sizes[outer] // free.sizes[level]))]
    if outer == level:
        return [used_and_index(key) for key in cells[:_IN_CHOICE]]
    found: list[_Cost] = []
    for some in islice(_parts(free, spare, outer, level), _LOOKS):
        if not some[0][0]:
            return some[:1]
        found += some
    found.sort(key=_leaves_used)
    return found[:_IN_CHOICE]


def _parts(free: Free, spare: IdleIndex, outer: int, level: int) -> Iterator[list[_Cost]]:
    """Cells of `level` in each free cell of `outer`, node by node in larger ones; the fewest leaves first in each list."""
    shape = free.shape
    for _, index in map(used_and_index, free.lists[outer]):
        if outer <= shape.node:
            yield _costs_inside(free, outer, index, level)
        elif level > shape.node:
            fan, used = shape.size(outer) // shape.size(level), free.used[level]
            yield sorted((used.get(cell, 0), cell) for cell in range(index * fan, (index + 1) * fan))
        else:
            fan = shape.size(outer) // shape.devices
            slots = range(index * fan, (index + 1) * fan)
            clean = spare.first_clean(slots)
            if clean is not None:
                yield [(0, clean * (shape.devices // shape.size(level)))]
            for slot in slots:
                yield _costs_inside(free, shape.node, slot, level)


def _costs_inside(free: Free, outer: int, index: int, level: int) -> list[_Cost]:
    """The same for one free cell inside a node."""
    shape = free.shape
    nodes, cells = shape.devices // shape.size(outer), shape.devices // shape.size(level)
    slot, at = divmod(index, nodes)
    return [(used, slot * cells + cell) for used, cell in touching(shape, outer, at, level, free.facts[slot].opportunistic)]


def opportunistic(free: Free, spare: IdleIndex, facts: Facts, n: int) -> tuple[int, Mask] | None:
    """`n` idle leaves on one node. Outside bindings first: on a node that has opportunistic work already, the tightest; else
    at the last address of the highest level of the free lists; else what is left of nodes. Inside bindings last."""
    if n < 1 or n > free.shape.devices:
        return None
    slot = spare.find_dirty(n)
    if slot is not None:
        return _pick_on(free.shape, slot, facts[slot].idle_leaves() & ~facts[slot].bound, n)
    for level in range(free.shape.top, -1, -1):
        if free.shape.size(level) < n:
            break
        found = _at_level(free, spare, facts, level, n)
        if found is not None:
            return found
    slot = spare.clean(n)
    if slot is not None:
        return _pick_on(free.shape, slot, facts[slot].idle_leaves() & ~facts[slot].bound, n)
    slot = spare.find_bound(n)
    return None if slot is None else _pick_on(free.shape, slot, facts[slot].idle_leaves(), n)


def _at_level(free: Free, spare: IdleIndex, facts: Facts, level: int, n: int) -> tuple[int, Mask] | None:
    """`n` leaves on a node without opportunistic work in a free cell of the level: in the cell that has the most of it (it is
    split last), then in the last one."""
    shape, cells = free.shape, free.lists[level]
    if level > shape.node:
        size = shape.size(level)
        fan = size // shape.devices
        for at in range(bisect_left(cells, key_of(size, 0)) - 1, -1, -1):
            _, index = used_and_index(cells[at])
            slot = spare.last_clean(range(index * fan, (index + 1) * fan))
            if slot is not None:
                return _pick_on(shape, slot, facts[slot].idle_leaves(), n)
        return None
    at = bisect_left(cells, key_of(1, 0)) - 1
    if at < 0:
        return None
    slot, cell = divmod(cells[at], shape.devices // shape.size(level))  # none is used
    return _pick_on(shape, slot, facts[slot].idle_leaves() & cell_mask(shape, level, cell), n)


def _pick_on(shape: Shape, slot: int, idle: Mask, n: int) -> tuple[int, Mask] | None:
    mask = pick(shape, idle, n)
    return None if mask is None else (slot, mask)


def partly_healthy(free: Free, facts: Facts, healthy: HealthyLeaves, level: int, need: int) -> list[int]:
    """Cells of the level that are under no binding and partly faulty, with `need` healthy leaves: the fewest of these first."""
    shape = free.shape
    found: list[tuple[int, int]] = []
    if level >= shape.node:
        fan = shape.size(level) // shape.devices
        for index in healthy.partly[level]:
            if healthy.counts[level][index] >= need and not any(facts[s].bound for s in range(index * fan, (index + 1) * fan)):
                found.append((healthy.counts[level][index], index))
    else:
        cells = shape.devices // shape.size(level)
        for slot in healthy.partly[shape.node]:
            for cell in range(cells):
                mask = cell_mask(shape, level, cell)
                count = (facts[slot].healthy & mask).bit_count()
                if max(1, need) <= count < shape.size(level) and not facts[slot].bound & mask:
                    found.append((count, slot * cells + cell))
    return [index for _, index in sorted(found)]


def costs_nobody(free: Free, claims: list[int], now: Balance, level: int, index: int) -> bool:
    """Whether no more cells would be missing at any level if a free virtual cell were bound to this one, itself not free."""
    lost = free.count_inside(level, index)
    have = [count - gone for count, gone in zip(free.counts, lost, strict=True)]
    rest = [count - (at == level) for at, count in enumerate(claims)]
    then = balance(have, rest, free.shape.fan)
    return all(after <= before for after, before in zip(then.missing, now.missing, strict=True))
