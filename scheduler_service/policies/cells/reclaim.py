"""Whom a virtual cluster sends away from its cells, where it has a choice.

Whoever leaves anyhow counts nothing. Of the places that are looked at, one is taken for which the fewest runs have to leave,
the whole of each gang; of as many, one where these hold the fewest of its leaves. Of as many again, those leave who are worth
least: the least priority goes, then FitGpp's score decides (Eqn 3: small jobs with short grace periods), summed over the jobs.
Inside a node a job gets the leaves of which the fewest are in use, unless others with as low a common ancestor cost fewer runs.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from scheduler_service.core.cells.leaf_choice import Places
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.queries import node_at
from scheduler_service.core.model import Run
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.candidates import size_of
from scheduler_service.core.state.state import State

Worth = tuple[int, int, float]
"""Of jobs, that have to leave: whether there are any, the highest priority, and the sum of their scores."""


@dataclass(frozen=True, slots=True)
class LeastLost:
    """The `leaf_choice.Choice` of a pool. `s` weighs the grace period against the size."""

    state: State
    pool: str
    s: float
    shared: bool = False
    """Whether a job of which only a part is in a place counts for that part alone: others of its runs may make room for other
    tasks of the gang that has it leave."""

    def between(self, options: Sequence[Places], taken: Places) -> int:
        anyhow = self._victims(taken)
        victims = [_without(self._victims(option), anyhow) for option in options]
        worth = self._worth(set().union(*victims))

        def cost(place: int) -> tuple[float, int, Worth, int]:
            jobs = victims[place]
            return sum(self._runs_lost(*job) for job in jobs.items()), sum(jobs.values()), worth(jobs.keys()), place

        return min(range(len(options)), key=cost)

    def runs_lost(self, places: Places) -> int:
        """How many runs have to leave that are not leaving yet, for all of these places."""
        return sum(len(self.state.active[job_id]) for job_id in self._victims(places))

    def _runs_lost(self, job_id: int, leaves: int) -> float:
        """The runs of the job, so many of whose leaves are taken."""
        runs = self.state.runs_of(job_id)
        return len(runs) * leaves / sum(len(run.devices) for run in runs) if self.shared else len(runs)

    def order(self, slot: int, taken: Places) -> tuple[Mask, ...]:
        anyhow, here = self._victims(taken), self._runs(slot)
        worth = self._worth({run.job_id for run, _ in here if not run.phase.exits_soon} - anyhow.keys())

        def cost(candidate: tuple[Run, Mask]) -> tuple[Worth, Mask]:
            run, mask = candidate
            stays = not run.phase.exits_soon and run.job_id not in anyhow
            return worth([run.job_id] if stays else ()), mask

        return tuple(mask for _, mask in sorted(here, key=cost))

    def _victims(self, places: Places) -> dict[int, int]:
        """Jobs with a run there that is not leaving yet, and how many of these leaves they hold."""
        found: dict[int, int] = {}
        for slot, mask in places:
            for run, held in self._runs(slot):
                if held & mask and not run.phase.exits_soon:
                    found[run.job_id] = found.get(run.job_id, 0) + (held & mask).bit_count()
        return found

    def _runs(self, slot: int) -> list[tuple[Run, Mask]]:
        """The runs of a node, and where they are."""
        pools, state = self.state.pools, self.state
        assert pools is not None
        node = node_at(pools, self.pool, slot) or 0
        runs = (state.runs.rows[key] for key in state.runs_on.get(node, ()))
        return [(run, positions(pools.positions[node], mask_of(run.devices))) for run in runs]

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


def _without(jobs: dict[int, int], others: Collection[int]) -> dict[int, int]:
    return {job_id: leaves for job_id, leaves in jobs.items() if job_id not in others}


def _size(state: State, job_id: int) -> float:
    """Eqn 1, summed over a gang's tasks."""
    return sum(size_of(run.demand, state.nodes.rows[run.node].capacity) for run in state.runs_of(job_id))


def _grace(state: State, job_id: int) -> int:
    """What it would get."""
    return min(state.jobs.rows[job_id].spec.grace_us, state.settings.reclaim_grace_us)
