"""Finds places for a job in the cells of its virtual cluster, whatever others do.

A task goes to the unit with the fewest available leaves that suffice, there to the lowest common ancestor. A free virtual cell
is used only if no bound cell will do, the smallest that will; which physical cell it becomes is the pool's choice. Tasks that
have to be together try one cell after the other, and if they cannot be placed, everything goes back to where it was.
"""

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from scheduler_service.core.cells.available_units import AvailableUnits, Domain
from scheduler_service.core.cells.leaf_choice import Choice, Places, fewest_leave, pick_leaves
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.request import Need, Part, RequestedCells, are_alike, enough, groups_of, needs_of
from scheduler_service.core.cells.shape import Shape, cell_mask
from scheduler_service.core.cells.shape import leaves as leaves_of
from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask

GIVEN_UP = 2000
"""How many places a search takes back before it gives up: the job then counts as one that fits nowhere."""


class Found(NamedTuple):
    """The places of a job."""

    binds: tuple[tuple[int, int], ...]
    """Free cells, (level, index), that become the virtual cluster's."""
    placed: dict[int, tuple[int, Mask]]
    """Rank -> slot and positions."""


class _Beside(NamedTuple):
    """The place of the previous task, and what is left of its unit: nothing is tighter for a task that asks for the same."""

    leaves: int
    level: int
    domain: Domain | None
    slot: int
    available: Mask


_Cell = tuple[int, int]
"""Level and index."""
_Place = tuple[int, Mask, Mask, _Cell | None]
"""Slot, what is available there, what of it the task gets, and the cell that is to be bound for it."""
_NO_WAY = object()
_NOTHING = _Beside(0, -1, None, 0, 0)


def find(
    pool: Pool, owner: Owner, request: RequestedCells, gone: dict[int, Mask] | None = None, choice: Choice | None = None
) -> Found | None:
    """Finds places for the job; None: it fits nowhere now. `gone`: leaves by slot that count as available although guaranteed
    runs hold them. `choice`: chooses between places that cost the same; None: the first. Changes nothing."""
    return _Search(pool, owner, request, gone or {}, choice).first()


def never_fits(pool: Pool, owner: Owner, request: RequestedCells) -> bool:
    """Whether it is certain that the job fits nowhere now; it is not if the search was given up."""
    search = _Search(pool, owner, request, {}, None)
    return search.first() is None and search.left > 0


class _Search:
    def __init__(self, pool: Pool, owner: Owner, request: RequestedCells, gone: dict[int, Mask], choice: Choice | None) -> None:
        self.pool, self.owner, self.request, self.choice = pool, owner, request, choice
        self.binds: list[tuple[int, int]] = []
        self.placed: dict[int, tuple[int, Mask]] = {}
        self.several = len(request.needs) > 1
        self.units = AvailableUnits(pool, owner, gone, self.several)
        self.beside = _NOTHING
        self.together = len(list(groups_of(request.parts))) if self.several else 0
        """How many groups that are to be in one cell have no place yet."""
        self.left = GIVEN_UP

    def first(self) -> Found | None:
        part = self.request.parts[0]
        if isinstance(part, Need) and not self.several:  # its first place is the result
            for slot, _, mask, cell in self._places(part, None):
                return Found(() if cell is None else (cell,), {part.rank: (slot, mask)})
            return None
        if not self._suffices():
            return None
        ways = self.all(self.request.parts, None)
        try:
            for _ in ways:
                return Found(tuple(self.binds), dict(self.placed))
            return None
        finally:
            ways.close()

    def _suffices(self) -> bool:
        """Whether there are enough leaves for the tasks of each size, anywhere. Rules out most searches that would fail."""
        if not self.several:  # the search itself is quick
            return True
        shape, promises = self.pool.shape, self.pool.promises
        sizes = list(enumerate(self.units.sizes()))
        for level in range(len(shape.fan)):
            on_one = min(shape.size(level), shape.devices)
            sizes.append((on_one, promises.free_of(self.owner, level) * (shape.size(level) // on_one)))
        return enough(self.request.needs, sizes)

    def all(self, parts: tuple[Part, ...], domain: Domain | None) -> Generator[None]:
        """Each way to place all parts; the places of a way are taken while the caller looks at it. There may be thousands of
        parts, so this is not recursive."""
        ways = [self._one(parts[0], domain)]  # for each part that has a place: its ways that are still to be tried
        homeless = True  # whether the last of them has had no place so far
        try:
            while ways:
                if next(ways[-1], _NO_WAY) is not _NO_WAY:
                    homeless = len(ways) < len(parts)
                    if homeless:
                        ways.append(self._one(parts[len(ways)], domain))
                    else:
                        yield
                    continue
                ways.pop()
                while homeless and ways and are_alike(parts[len(ways)], parts[len(ways) - 1]):
                    ways.pop().close()  # where its like could go instead, it could have gone itself
                homeless = False
        finally:
            while ways:
                ways.pop().close()

    def _one(self, part: Part, domain: Domain | None) -> Generator[None]:
        if isinstance(part, Need):
            yield from self._task(part, domain)
            return
        self.together -= 1
        try:
            for inside in self._cells(part.level, sum(need.leaves for need in needs_of(part.parts)), domain):
                yield from self.all(part.parts, inside)
            if not part.required:
                yield from self.all(part.parts, domain)
        finally:
            self.together += 1

    # ---- one task --------------------------------------------------------------------------------------------------------

    def _task(self, need: Need, domain: Domain | None) -> Generator[None]:
        before = self.beside
        for slot, available, mask, cell in self._places(need, domain):
            if self.left <= 0:
                return
            self.placed[need.rank] = slot, mask
            self.units.take_leaves(slot, mask)
            self.beside = _Beside(need.leaves, need.level, domain, slot, available & ~mask)
            if cell is not None:
                self._bind(cell)
            try:
                yield
            finally:
                if cell is not None:
                    self._unbind()
                self.units.put_back(slot, mask)
                self.beside = before
                del self.placed[need.rank]
                self.left -= 1

    def _places(self, need: Need, domain: Domain | None) -> Iterator[_Place]:
        """Places for a task: in bound units first, the tightest first, then in cells that could be bound."""
        tried: set[Mask] = set()
        for slot, available in self._sparing(need, self._tightest(need, domain)):
            if (
                self.together or available not in tried
            ):  # the same leaves elsewhere fare the same, except for the cells around them
                tried.add(available)
                mask = self._pick(slot, available, need)
                if mask is not None:
                    yield slot, available, mask, None
        if domain is None:
            for cell in self._fresh_cells(need.leaves, 0, need):
                for slot, available in self._parts_inside(cell, need):
                    mask = self._pick(slot, available, need)
                    if mask is not None:
                        yield slot, available, mask, cell
                        break

    def _parts_inside(self, cell: _Cell, need: Need) -> Iterator[tuple[int, Mask]]:
        """Parts of an unbound cell that have enough leaves, by node; first the one where the fewest runs leave."""
        parts = self.pool.leaves(*cell)
        if len(parts) == 1:
            ((slot, mask),) = parts
            return iter(((slot, self.units.available(slot, mask)),))
        each = ((slot, self.units.available(slot, mask)) for slot, mask in parts)
        units = ((slot, available) for slot, available in each if available.bit_count() >= need.leaves)
        if self.choice is None:
            return units
        return fewest_leave(self.pool, units, need, self.choice, self._taken_places)

    def _pick(self, slot: int, available: Mask, need: Need) -> Mask | None:
        return pick_leaves(self.pool, slot, available, need, self.choice, self._taken_places)

    def _sparing(self, need: Need, units: Iterator[tuple[int, Mask]]) -> Iterator[tuple[int, Mask]]:
        """The same units, but of equally tight and near ones, first the one where the fewest runs leave."""
        if self.choice is None or not self.pool.visited_nodes(self.owner):
            yield from units
            return
        for _, alike_units in groupby(units, lambda unit: (unit[1].bit_count(), self.several and self.units.distance(unit[0]))):
            yield from fewest_leave(self.pool, alike_units, need, self.choice, self._taken_places)

    def _taken_places(self) -> Places:
        """Places that the job has so far."""
        return [*self.units.taken.items(), *(place for cell in self.binds for place in leaves_of(self.pool.shape, *cell))]

    def _tightest(self, need: Need, domain: Domain | None) -> Iterator[tuple[int, Mask]]:
        """Slot and available leaves of bound units, the tightest first."""
        leaves, beside = need.leaves, self.beside
        if beside.leaves == leaves and beside[1:3] == (need.level, domain) and beside.available.bit_count() >= leaves:
            yield beside.slot, beside.available
        yield from self.units.tightest(leaves, domain)

    # ---- cells -----------------------------------------------------------------------------------------------------------

    def _fresh_cells(self, leaves: int, least: int, need: Need | None = None) -> Iterator[tuple[int, int]]:
        """Cells for its free virtual cells of this level or above that are large enough for something on one node, the smallest
        first; each may be bound and unbound while it is looked at. `need`: the task that it is for; None: it is for several."""
        pool = self.pool
        for level in range(least, len(pool.sizes)):
            if pool.sizes[level] >= leaves and pool.promises.free_of(self.owner, level):
                for index in pool.all_to_bind(self.owner, level, leaves, partial(self._choose, need)):
                    yield level, index

    def _bind(self, cell: _Cell) -> None:
        self.pool.bind(*cell, self.owner)
        self.binds.append(cell)

    def _unbind(self) -> None:
        self.pool.unbind(*self.binds.pop())

    def _choose(self, need: Need | None, level: int, cells: Sequence[int]) -> int:
        if self.choice is None or len(cells) == 1:
            return cells[0]
        options = [self._wanted_places(need, level, cell) for cell in cells]
        return cells[self.choice.choose_between(options, self._taken_places())]

    def _wanted_places(self, need: Need | None, level: int, cell: int) -> Places:
        """Leaves of the cell that are taken from others: the place of the task, if it is for a task, and else all of it."""
        places = self.pool.leaves(level, cell)
        if need is None or len(places) > 1:
            return places
        ((slot, mask),) = places
        return ((slot, self._pick(slot, self.units.available(slot, mask), need) or mask),)

    def _cells(self, level: int, leaves: int, domain: Domain | None) -> Iterator[Domain]:
        """Cells of the level in what is the virtual cluster's, those with the fewest available leaves that suffice first."""
        shape = self.pool.shape
        if shape.size(level) < leaves:
            return
        if domain is not None and len(domain.slots) * domain.mask.bit_count() <= shape.size(level):
            yield domain  # what it is inside already is no larger
            return
        found: dict[int, int] = {}
        for slot, mask in self.units.all() if domain is None else self.units.parts_inside(domain):
            for index, inside in _cells_of(shape, level, slot, mask):
                found[index] = found.get(index, 0) + self.units.available(slot, inside).bit_count()
        enough = sorted((count, index) for index, count in found.items() if count >= leaves)
        for _, index in enough:
            yield self._domain(level, index)
        if domain is None:
            for outer, index in self._fresh_cells(min(leaves, shape.devices), level):
                fan = shape.size(outer) // shape.size(level)
                for inner in (self._domain(level, i) for i in range(index * fan, (index + 1) * fan)):
                    if sum(self.units.available(slot, inner.mask).bit_count() for slot in inner.slots) >= leaves:
                        self._bind((outer, index))
                        try:
                            yield inner
                        finally:
                            self._unbind()
                        break

    def _domain(self, level: int, index: int) -> Domain:
        leaves = list(leaves_of(self.pool.shape, level, index))
        return Domain(range(leaves[0][0], leaves[-1][0] + 1), leaves[0][1])


def _cells_of(shape: Shape, level: int, slot: int, mask: Mask) -> Iterator[tuple[int, Mask]]:
    """The cells of the level around or in these positions of a node: index, and what of the mask is in it."""
    if level >= shape.node:
        yield slot * shape.devices // shape.size(level), mask
        return
    per = shape.devices // shape.size(level)
    for index in range(per):
        inside = mask & cell_mask(shape, level, index)
        if inside:
            yield slot * per + index, inside
