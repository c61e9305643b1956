"""Whom a virtual cluster sends away from its cells, where it has a choice.

The buddy takes the cell with the fewest opportunistic leaves (`core.cells.binding`), and inside its own cells a job gets the
leaves of which the fewest are in use. Of places with as many, those are taken whose runs are worth least: who leaves anyhow
counts nothing, then the least priority goes, then FitGpp's score decides (Eqn 3: small jobs with short grace periods), summed
over the jobs that would have to leave, the whole of each gang.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from scheduler_service.core.among import node_at
from scheduler_service.core.candidates import size_of
from scheduler_service.core.cells.choosing import Places
from scheduler_service.core.cells.seats import positions
from scheduler_service.core.job import Run, RunPhase
from scheduler_service.core.state import State
from scheduler_service.core.values import Mask, mask_of

Worth = tuple[int, int, float]
"""Of jobs, that have to leave: whether there are any, the highest priority, and the sum of their scores."""


@dataclass(frozen=True, slots=True)
class LeastLost:
    """The `placing.Choice` of a pool. `s` weighs the grace period against the size."""

    state: State
    pool: str
    s: float

    def between(self, options: Sequence[Places], taken: Places) -> int:
        anyhow = self._victims(taken)
        victims = [self._victims(option) - anyhow for option in options]
        worth = self._worth(set().union(*victims))
        return min(range(len(options)), key=lambda place: (*worth(victims[place]), place))

    def order(self, slot: int, taken: Places) -> tuple[Mask, ...]:
        anyhow, here = self._victims(taken), self._runs(slot)
        worth = self._worth({run.job_id for run, _ in here if run.phase is not RunPhase.STOPPING} - anyhow)

        def cost(guest: tuple[Run, Mask]) -> tuple[Worth, Mask]:
            run, mask = guest
            stays = run.phase is not RunPhase.STOPPING and run.job_id not in anyhow
            return worth([run.job_id] if stays else ()), mask

        return tuple(mask for _, mask in sorted(here, key=cost))

    def _victims(self, places: Places) -> set[int]:
        """Jobs with a run there that is not leaving yet."""
        return {
            run.job_id
            for slot, mask in places
            for run, held in self._runs(slot)
            if held & mask and run.phase is not RunPhase.STOPPING
        }

    def _runs(self, slot: int) -> list[tuple[Run, Mask]]:
        """The runs of a node, and where they are."""
        pools, state = self.state.pools, self.state
        assert pools is not None
        node = node_at(pools, self.pool, slot) or 0
        runs = (state.runs.rows[key] for key in state.runs_on.get(node, ()))
        return [(run, positions(pools.seats[node], mask_of(run.devices))) for run in runs]

    def _worth(self, everybody: Collection[int]) -> Callable[[Collection[int]], Worth]:
        """Gives what some of these jobs are worth."""
        state = self.state
        sizes = {job_id: _size(state, job_id) for job_id in everybody}
        graces = {job_id: _grace(state, job_id) for job_id in everybody}
        largest, longest = max(sizes.values(), default=0) or 1, max(graces.values(), default=0) or 1

        def worth(jobs: Collection[int]) -> Worth:
            score = sum(sizes[job_id] / largest + self.s * graces[job_id] / longest for job_id in sorted(jobs))
            priority = max((state.jobs.rows[job_id].priority for job_id in jobs), default=0)
            return bool(jobs), priority, score

        return worth


def _size(state: State, job_id: int) -> float:
    """Eqn 1, summed over a gang's tasks."""
    return sum(size_of(run.demand, state.nodes.rows[run.node].capacity) for run in state.runs_of(job_id))


def _grace(state: State, job_id: int) -> int:
    """What it would get."""
    return min(state.jobs.rows[job_id].spec.grace_us, state.settings.reclaim_grace_us)
