"""The fewest opportunistic runs that have to leave for a guaranteed job: by trying everything.

A placement is admissible if each task is inside one of the virtual cluster's units, and if the cells that are bound for it
leave every other promise as it was (Eqn 2). Runs that leave anyhow do not count.
"""

from collections.abc import Iterator
from itertools import combinations

from scheduler_service.core.cells.node_masks import height_of
from scheduler_service.core.cells.pool import Pool
from scheduler_service.core.cells.pool_queries import is_unbound
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.shape import leaves
from scheduler_service.core.model import RunPhase
from scheduler_service.core.model.tenants.virtual_clusters import Owner
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.state import State

Cell = tuple[int, int]
Places = list[tuple[int, Mask]]
"""Slots and positions."""


def opportunistic_jobs_of(state: State) -> dict[int, Places]:
    """Where the opportunistic jobs are that do not leave anyhow, run by run."""
    assert state.pools is not None
    found: dict[int, Places] = {}
    for run in state.runs.rows.values():
        if not run.guaranteed and run.phase is not RunPhase.STOPPING:
            position = state.pools.positions[run.node]
            found.setdefault(run.job_id, []).append((position.slot, positions(position, mask_of(run.devices))))
    return found


def least_evicted(pool: Pool, opportunistic_jobs: dict[int, Places], owner: Owner, tasks: list[int]) -> int | None:
    """How many runs have to leave at least for tasks of so many devices, wherever they go; None: there is no place for them."""
    best: int | None = None
    for cells in sets_to_bind(pool, owner, len(tasks)):
        for level, index in cells:
            pool.bind(level, index, owner)
        units = [(unit.slot, pool.available(unit.slot, unit.mask)) for unit in pool.units(owner)]
        for cell in cells:
            pool.unbind(*cell)
        most = len(tasks) * pool.shape.devices if best is None else best - 1
        found = _fewest(units, opportunistic_jobs, sorted(tasks, reverse=True), most)
        best = best if found is None else found
        if best == 0:
            break
    return best


def least_as_good(
    pool: Pool, opportunistic_jobs: dict[int, Places], owner: Owner, position: tuple[int, Mask], binds: list[Cell]
) -> int:
    """The same of one task, in places that are as good for the virtual cluster as the one that it got, for which these cells
    were bound: in a bound unit with as many available leaves, or in another cell of the same level; each time with as low a
    common ancestor."""
    slot, mask = position
    if binds:
        ((level, _),) = binds
        cells = [cell for (cell,) in (some for some in sets_to_bind(pool, owner, 1) if some) if cell[0] == level]
        units = [place for cell in cells for place in leaves(pool.shape, *cell)]
    else:
        mine = [(unit.slot, pool.available(unit.slot, unit.mask)) for unit in pool.units(owner)]
        count = next(inside.bit_count() for at, inside in mine if at == slot and inside & mask)
        units = [unit for unit in mine if unit[1].bit_count() == count]
    return min(
        sum(len(runs) for runs in opportunistic_jobs.values() if any(at == there and held & taken for there, held in runs))
        for at, inside in units
        for taken in _subsets(inside, mask.bit_count())
        if height_of(pool.shape, taken) <= height_of(pool.shape, mask)
    )


def _subsets(mask: Mask, size: int) -> Iterator[Mask]:
    bits = [1 << i for i in range(mask.bit_length()) if mask >> i & 1]
    return (sum(some) for some in combinations(bits, size))


def sets_to_bind(pool: Pool, owner: Owner, most: int) -> Iterator[list[Cell]]:
    """Up to so many cells that could be bound to the virtual cluster together, at nobody's cost."""
    nodes = len(pool.well[pool.shape.node])
    cells = [
        (level, index)
        for level in range(len(pool.shape.fan))
        if pool.promises.free_of(owner, level)
        for index in range(nodes * pool.shape.devices // pool.shape.size(level))
        if is_unbound(pool, level, index)
    ]
    before = pool.shortfall()
    for chosen in (some for count in range(most + 1) for some in combinations(cells, count)):
        bound: list[Cell] = []
        for level, index in chosen:
            if pool.promises.free_of(owner, level) and is_unbound(pool, level, index):
                pool.bind(level, index, owner)
                bound.append((level, index))
        kept = len(bound) == len(chosen) and all(now <= then for now, then in zip(pool.shortfall(), before, strict=True))
        for cell in bound:
            pool.unbind(*cell)
        if kept:
            yield bound


def _fewest(units: Places, opportunistic_jobs: dict[int, Places], tasks: list[int], most: int) -> int | None:
    """The fewest runs that leave so that the tasks fit in these units; None: more than `most`."""
    slots = {slot for slot, _ in units}
    here = [job for job, runs in opportunistic_jobs.items() if any(slot in slots for slot, _ in runs)]
    held = _together(opportunistic_jobs, list(opportunistic_jobs))
    sets = sorted(
        (sum(len(opportunistic_jobs[job]) for job in jobs), jobs)
        for n in range(len(here) + 1)
        for jobs in combinations(here, n)
    )
    for count, jobs in sets:
        if count > most:
            break
        freed = _together(opportunistic_jobs, list(jobs))
        room = [(inside & ~(held.get(slot, 0) & ~freed.get(slot, 0))).bit_count() for slot, inside in units]
        if _fit(room, tasks):
            return count
    return None


def _together(opportunistic_jobs: dict[int, Places], jobs: list[int]) -> dict[int, Mask]:
    found: dict[int, Mask] = {}
    for job in jobs:
        for slot, mask in opportunistic_jobs[job]:
            found[slot] = found.get(slot, 0) | mask
    return found


def _fit(room: list[int], tasks: list[int]) -> bool:
    if not tasks:
        return True
    for i, left in enumerate(room):
        if left >= tasks[0] and left not in room[:i]:
            room[i] -= tasks[0]
            fits = _fit(room, tasks[1:])
            room[i] += tasks[0]
            if fits:
                return True
    return False
