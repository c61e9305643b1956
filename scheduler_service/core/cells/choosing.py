"""Which leaves a task gets of those that are available to it: such as have the fewest opportunistic runs leave.

How many leaves are in use comes first, and is known here; whose runs these are is for a policy to say, by its `Choice`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from scheduler_service.core.cells.asked import Need
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.shape import Shape, pick, pick_cell
from scheduler_service.core.values import Mask

IN_CHOICE = 16
"""Units with as many opportunistic leaves between which it is asked whose these are."""

Places = Sequence[tuple[int, Mask]]
"""Slots and positions."""


class Choice(Protocol):
    """Who leaves, where as many leaves are in use one way or the other. `taken` is what the job gets anyhow."""

    def between(self, options: Sequence[Places], taken: Places) -> int:
        """Which of these places the job is to get."""

    def order(self, slot: int, taken: Places) -> tuple[Mask, ...]:
        """Where the opportunistic runs of a node are: first those that are to leave before the others."""


def picked(
    pool: Pool, slot: int, available: Mask, need: Need, choice: Choice | None, taken: Callable[[], Places]
) -> Mask | None:
    """What the task gets of the leaves that are available on a node; None: they do not do."""
    guests = pool.held(slot)[1] & available
    mask = _picked(pool.shape, available, need, (guests,) if guests else ())
    if choice is None or mask is None or not mask & guests:
        return mask
    layers, rest = [], guests
    for held in choice.order(slot, taken()):
        if held & rest:
            layers.append(held & rest)
            rest &= ~held
    return _picked(pool.shape, available, need, (*layers, rest) if rest else tuple(layers))


def _picked(shape: Shape, available: Mask, need: Need, avoid: tuple[Mask, ...]) -> Mask | None:
    if need.level >= 0:
        return pick_cell(shape, available, need.level, avoid)
    return pick(shape, available, need.leaves, avoid)


def fewest_leave(
    pool: Pool, units: Iterable[tuple[int, Mask]], need: Need, choice: Choice, taken: Callable[[], Places]
) -> Iterator[tuple[int, Mask]]:
    """Units, a slot and what is available there, that are as good but for who would have to leave: nobody comes first, then
    those with the fewest leaves in use, and of as many the best choice, among the first of them."""
    dear: list[tuple[int, int, Mask]] = []
    for slot, available in units:
        guests = pool.held(slot)[1] & available
        touched = guests & (picked(pool, slot, available, need, None, taken) or 0) if guests else 0
        if touched:
            dear.append((touched.bit_count(), slot, available))
        else:
            yield slot, available
    dear.sort()
    as_few = [(slot, available) for count, slot, available in dear[:IN_CHOICE] if count == dear[0][0]]
    if len(as_few) > 1:
        masks = [picked(pool, *unit, need, choice, taken) or 0 for unit in as_few]
        options = [((slot, mask & pool.held(slot)[1]),) for (slot, _), mask in zip(as_few, masks, strict=True)]
        dear.insert(0, dear.pop(choice.between(options, taken())))
    yield from ((slot, available) for _, slot, available in dear)
