"""Whom a virtual cluster sends away from its cells, where it has a choice.

The buddy takes the cell with the fewest opportunistic leaves (`core.cells.binding`). Of cells with as many, the one is taken
whose runs are worth least: who leaves anyhow counts nothing, then the least priority goes, then FitGpp's score decides (Eqn
3: small jobs with short grace periods), summed over the jobs that would have to leave, the whole of each gang.
"""

from collections.abc import Sequence

from scheduler_service.core.candidates import size_of
from scheduler_service.core.cells.placing import Choose
from scheduler_service.core.cells.seats import positions
from scheduler_service.core.cells.shape import leaves
from scheduler_service.core.job import RunPhase
from scheduler_service.core.state import State
from scheduler_service.core.values import mask_of


def least_lost(state: State, pool: str, s: float) -> Choose:
    """Of cells of the pool, that whose opportunistic runs are to leave. `s` weighs the grace period against the size."""

    def choose(level: int, cells: Sequence[int], taken: Sequence[tuple[int, int]]) -> int:
        if len(cells) == 1:
            return cells[0]
        anyhow = set[int]().union(*(_victims(state, pool, *other) for other in taken))
        victims = [sorted(_victims(state, pool, level, cell) - anyhow) for cell in cells]
        everybody = set[int]().union(*victims)
        sizes = {job_id: _size(state, job_id) for job_id in everybody}
        graces = {job_id: _grace(state, job_id) for job_id in everybody}
        largest, longest = max(sizes.values(), default=0) or 1, max(graces.values(), default=0) or 1

        def worth(place: int) -> tuple[int, int, float, int]:
            jobs = victims[place]
            score = sum(sizes[job_id] / largest + s * graces[job_id] / longest for job_id in jobs)
            priority = max((state.jobs.rows[job_id].priority for job_id in jobs), default=0)
            return bool(jobs), priority, score, place

        return cells[min(range(len(cells)), key=worth)]

    return choose


def _victims(state: State, pool: str, level: int, cell: int) -> set[int]:
    """Jobs with an opportunistic run in the cell, that are not leaving yet."""
    pools = state.pools
    assert pools is not None
    found = set[int]()
    for slot, mask in leaves(pools.pools[pool].shape, level, cell):
        node = pools.node_at(pool, slot)
        for key in state.runs_on.get(node or 0, ()):
            run = state.runs.rows[key]
            if run.phase is not RunPhase.STOPPING and positions(pools.seats[run.node], mask_of(run.devices)) & mask:
                found.add(key.job_id)
    return found


def _size(state: State, job_id: int) -> float:
    """Eqn 1, summed over a gang's tasks."""
    return sum(size_of(run.demand, state.nodes.rows[run.node].capacity) for run in state.runs_of(job_id))


def _grace(state: State, job_id: int) -> int:
    """What it would get."""
    return min(state.jobs.rows[job_id].spec.grace_us, state.settings.reclaim_grace_us)
