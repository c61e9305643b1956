"""Users' progress (section 3.3.2): what each receives now, and whose jobs are considered (Algorithm 2, line 2)."""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, inf

from scheduler_service.core.model import Job
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.state import State
from scheduler_service.core.state.suitable_nodes import Asked, asked
from scheduler_service.policies.allox.ways import Way, ways


class Shares:
    """Dominant shares of one state, whose nodes do not change meanwhile."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._wholes: dict[Asked | None, Vector] = {}

    def of(self, one: Job) -> float:
        """Of a job in one configuration: its devices of those on all nodes that suit it, or its CPUs if it has no devices, or
        its memory; the largest of these parts. (The paper's m_c in the share of a configuration on GPUs is a slip for m_g.)"""
        demand, asks = one.spec.demand, asked(one.spec)
        whole = self._wholes.get(asks)
        if whole is None:
            capacities = self._state.free_resources.capacities(self._state.among(one.spec))
            whole = self._wholes[asks] = Vector(*capacities.sum(axis=1).tolist())
        main = (demand.devices, whole.devices) if demand.devices else (demand.cpu_milli, whole.cpu_milli)
        return max(_part(*main), _part(demand.memory_mib, whole.memory_mib))


def progress(state: State, unknown_us: int) -> dict[str, float]:
    """By user: the sum of the values of the jobs that hold resources. Users with none are left out."""
    found: defaultdict[str, float] = defaultdict(float)
    shares = Shares(state)
    for job_id in sorted(state.active):
        job = state.jobs.rows[job_id]
        found[job.user] += values(shares, ways(job, unknown_us))[job.configuration]
    return found


def values(shares: Shares, of: Sequence[Way]) -> list[float]:
    """What a user's progress gains by a job in each configuration: the dominant share of the fastest one, less in one that
    takes longer: times the time in the fastest over the time in this one."""
    best = min(of, key=lambda way: way.time_us)
    whole = shares.of(best.job)
    return [best.time_us / way.time_us * whole for way in of]


def _part(amount: int, whole: int) -> float:
    return amount / whole if whole else (inf if amount else 0.0)


def considered(users: int, alpha: float) -> int:
    """How many users of lowest progress are considered: ceil(alpha n), and one for alpha = 0."""
    return min(max(ceil(alpha * users), 1), users)
