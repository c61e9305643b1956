"""The runs that have to leave the cells of a virtual cluster, if it has a choice.

Runs that leave anyway count nothing. Of the places that are looked at, the one is taken for which the fewest runs have to
leave, with the whole of each gang; of equals, the one where these hold the fewest leaves. Of equals again, the jobs leave that
are worth least: by priority, then by FitGpp's score (Eqn 3: small jobs with short grace periods), summed over the jobs. Inside
a node a job gets the leaves of which the fewest are in use, unless others with as low a common ancestor cost fewer runs.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from scheduler_service.core.cells.leaf_choice import Places
from scheduler_service.core.cells.positions import positions
from scheduler_service.core.cells.queries import node_at
from scheduler_service.core.model import Run
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.holdings import holding, jobs_together, runs_together
from scheduler_service.core.state.resources.candidates import size_of
from scheduler_service.core.state.state import State

Worth = tuple[int, int, float]
"""The worth of jobs that have to leave: whether there are any, the highest priority, and the sum of their scores."""


@dataclass(frozen=True, slots=True)
class LeastLost:
    """The `leaf_choice.Choice` of a pool. `s` weighs the grace period against the size."""

    state: State
    pool: str
    s: float
    shared: bool = False
    """Whether a job of which only a part is in a place counts for that part alone: others of its runs may make room for other
    tasks of the gang that has it leave."""

    def choose_between(self, options: Sequence[Places], taken: Places) -> int:
        anyhow = self._victims(taken)
        victims = [_drop_jobs(self._victims(option), anyhow) for option in options]
        worth = self._worth(set().union(*victims))

        def cost(place: int) -> tuple[float, int, Worth, int]:
            jobs = victims[place]
            return sum(self._runs_lost(*job) for job in jobs.items()), sum(jobs.values()), worth(jobs.keys()), place

        return min(range(len(options)), key=cost)

    def runs_lost(self, places: Places) -> int:
        """How many runs have to leave that are not leaving yet, for all of these places."""
        return sum(len(runs_together(self.state, job_id)) for job_id in self._victims(places))

    def _runs_lost(self, job_id: int, leaves: int) -> float:
        """The runs of the job, so many of whose leaves are taken."""
        runs = runs_together(self.state, job_id)
        return len(runs) * leaves / sum(len(run.devices) for run in runs) if self.shared else len(runs)

    def order(self, slot: int, taken: Places) -> tuple[Mask, ...]:
        anyhow, here = self._victims(taken), self._runs(slot)
        worth = self._worth({first_with(self.state, run) for run, _ in here if not _goes_anyhow(run)} - anyhow.keys())

        def cost(candidate: tuple[Run, Mask]) -> tuple[Worth, Mask]:
            run, mask = candidate
            first = first_with(self.state, run)
            stays = not _goes_anyhow(run) and first not in anyhow
            return worth([first] if stays else ()), mask

        return tuple(mask for _, mask in sorted(here, key=cost))

    def _victims(self, places: Places) -> dict[int, int]:
        """Jobs with a run there that is not leaving yet, and how many of these leaves they hold. Of those that share devices,
        the first represents all."""
        found: dict[int, int] = {}
        for slot, mask in places:
            for run, held in self._runs(slot):
                if held & mask and not _goes_anyhow(run):
                    first = first_with(self.state, run)
                    found[first] = found.get(first, 0) + (held & mask).bit_count()
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
            priority = max(
                (state.jobs.rows[one].priority for job_id in jobs for one in jobs_together(state, job_id)), default=0
            )
            return bool(jobs), priority, score

        return worth


def _goes_anyhow(run: Run) -> bool:
    """Whether no work is lost with it: it is leaving, or waits to begin there while its job runs elsewhere."""
    return run.phase.exits_soon or run.awaits


def _drop_jobs(jobs: dict[int, int], others: Collection[int]) -> dict[int, int]:
    return {job_id: leaves for job_id, leaves in jobs.items() if job_id not in others}


def _size(state: State, job_id: int) -> float:
    """Eqn 1, summed over the tasks of a gang, or over the nodes of a share group."""
    return sum(size_of(holding(state, run), state.nodes.rows[run.node].capacity) for run in runs_together(state, job_id))


def _grace(state: State, job_id: int) -> int:
    """The grace period that it would get; the longest of those that share its devices."""
    longest = max(state.jobs.rows[one].spec.grace_us for one in jobs_together(state, job_id))
    return min(longest, state.settings.reclaim_grace_us)


def first_with(state: State, run: Run) -> int:
    """The first of the jobs that share the run's devices, which represents all of them."""
    return jobs_together(state, run.job_id)[0] if run.group else run.job_id
