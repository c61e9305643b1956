"""Users' progress (section 3.3.2): what each receives now, and whose jobs are considered (Algorithm 2, line 2)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil, inf

from scheduler_service.core.model import Job, NodeSelector
from scheduler_service.core.model.values import Vector
from scheduler_service.core.state.state import State
from scheduler_service.policies.allox.ways import Way, times


def progress(state: State, unknown_us: int) -> dict[str, float]:
    """By user: the sum of the values of the jobs that hold resources. Users with none are left out."""
    found: defaultdict[str, float] = defaultdict(float)
    shares: dict[tuple[Vector, str, int, NodeSelector], float] = {}
    """Few jobs differ in what decides their share."""
    for job_id in sorted(state.active):
        job = state.jobs.rows[job_id]
        took = times(job, unknown_us)
        best = took.index(min(took))
        asks = job.spec.alternatives[best - 1] if best else job.spec
        kind = asks.demand, asks.cells.model, asks.device_memory_mib, asks.nodes
        share = shares.get(kind)
        if share is None:
            share = shares[kind] = dominant_share(state, job.configured(best))
        found[job.user] += took[best] / took[job.configuration] * share
    return found


def value(state: State, of: list[Way], configuration: int) -> float:
    """The dominant share of a job's fastest configuration, less as it runs in one that takes longer: times the time in the
    fastest over the time in this one."""
    best = min(of, key=lambda way: way.time_us)
    return best.time_us / of[configuration].time_us * dominant_share(state, best.job)


def dominant_share(state: State, one: Job) -> float:
    """Of a job in one configuration: its devices of those on all nodes that suit it, or its CPUs if it has no devices, or its
    memory; the largest of these parts. (In the paper, m_c in the share of a configuration on GPUs is a slip for m_g.)"""
    demand = one.spec.demand
    whole = Vector(*state.free_resources.capacities(state.among(one.spec)).sum(axis=1).tolist())
    main = (demand.devices, whole.devices) if demand.devices else (demand.cpu_milli, whole.cpu_milli)
    return max(_part(*main), _part(demand.memory_mib, whole.memory_mib))


def _part(amount: int, whole: int) -> float:
    return amount / whole if whole else (inf if amount else 0.0)


def by_progress(users: Iterable[str], now: Mapping[str, float]) -> list[str]:
    """The users, the one with the lowest progress first."""
    return sorted(users, key=lambda user: (now.get(user, 0.0), user))


def considered(users: int, alpha: float) -> int:
    """How many users of lowest progress are considered: ceil(alpha n), and one for alpha = 0."""
    return min(max(ceil(alpha * users), 1), users)
