"""Which of the available leaves a task gets: those for which the fewest opportunistic runs have to leave.

How many leaves are in use is known here; whose runs these are is for a policy to say, by its `Choice`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from scheduler_service.core.cells.node_masks import height_of, pick, pick_cell
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.request import Need
from scheduler_service.core.cells.shape import Shape
from scheduler_service.core.model.values import Mask

IN_CHOICE = 16
"""The most units that a `Choice` compares; of more, those with the fewest opportunistic leaves."""

Places = Sequence[tuple[int, Mask]]
"""Slots and positions."""


class Choice(Protocol):
    """Chooses which runs have to leave, if leaves in use are taken either way. `taken` is what the job gets in any case."""

    def choose_between(self, options: Sequence[Places], taken: Places) -> int:
        """Which of these places the job is to get."""

    def order(self, slot: int, taken: Places) -> tuple[Mask, ...]:
        """Leaves of the opportunistic runs of a node: first those of runs that are to leave before the others."""


def pick_leaves(
    pool: Pool, slot: int, available: Mask, need: Need, choice: Choice | None, taken: Callable[[], Places]
) -> Mask | None:
    """The leaves that the task gets of those available on a node; None: they do not suffice."""
    opportunistic = pool.held_leaves(slot)[1] & available
    mask = _pick_from_node(pool.shape, available, need, (opportunistic,) if opportunistic else ())
    if choice is None or mask is None or not mask & opportunistic:
        return mask
    layers, rest = [], opportunistic
    for held in choice.order(slot, taken()):
        if held & rest:
            layers.append(held & rest)
            rest &= ~held
    avoid = (*layers, rest) if rest else tuple(layers)
    return _sparing_runs(pool, slot, available, need, choice, taken, avoid)


def _sparing_runs(
    pool: Pool, slot: int, available: Mask, need: Need, choice: Choice, taken: Callable[[], Places], runs: tuple[Mask, ...]
) -> Mask | None:
    """The fewest leaves in use, unless fewer runs have to leave for others with as low a common ancestor. The runs that would
    have to leave are spared one after the other."""
    mask = _pick_from_node(pool.shape, available, need, runs)
    if mask is None:
        return None
    height = height_of(pool.shape, mask)
    for held in reversed(runs):
        other = _pick_from_node(pool.shape, available & ~held, need, runs) if mask & held else None
        if other is not None and height_of(pool.shape, other) == height:
            opportunistic = pool.held_leaves(slot)[1]
            if choice.choose_between([((slot, mask & opportunistic),), ((slot, other & opportunistic),)], taken()):
                mask, available = other, available & ~held
    return mask


def _pick_from_node(shape: Shape, available: Mask, need: Need, avoid: tuple[Mask, ...]) -> Mask | None:
    if need.level >= 0:
        return pick_cell(shape, available, need.level, avoid)
    return pick(shape, available, need.leaves, avoid)


def fewest_leave(
    pool: Pool, units: Iterable[tuple[int, Mask]], need: Need, choice: Choice, taken: Callable[[], Places]
) -> Iterator[tuple[int, Mask]]:
    """Orders units (a slot and its available leaves) that are equally good but for the runs that have to leave: first those
    where no run does, then the best choice among those with the fewest leaves in use, then the others."""
    dear: list[tuple[int, int, Mask]] = []
    for slot, available in units:
        opportunistic = pool.held_leaves(slot)[1] & available
        touched = opportunistic & (pick_leaves(pool, slot, available, need, None, taken) or 0) if opportunistic else 0
        if touched:
            dear.append((touched.bit_count(), slot, available))
        else:
            yield slot, available
    dear.sort()
    few = [(slot, available) for _, slot, available in dear[:IN_CHOICE]]
    if len(few) > 1:
        masks = [pick_leaves(pool, *unit, need, choice, taken) or 0 for unit in few]
        options = [((slot, mask & pool.held_leaves(slot)[1]),) for (slot, _), mask in zip(few, masks, strict=True)]
        dear.insert(0, dear.pop(choice.choose_between(options, taken())))
    yield from ((slot, available) for _, slot, available in dear)
