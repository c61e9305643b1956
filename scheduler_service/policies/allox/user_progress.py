"""Users' progress (section 3.3.2): what each receives now. And how many users are considered (Algorithm 2, line 2)."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from math import ceil

from scheduler_service.core.model import Job, JobSpec
from scheduler_service.policies.allox.configuration_times import Known


def progress(holders: Iterable[tuple[Job, int]], known: Known, share: Callable[[JobSpec], float]) -> dict[str, float]:
    """The progress of each user: the sum of the values of the jobs that hold resources, each in a configuration. Users with
    none are left out. The value of a job is the dominant share of its fastest configuration, less in one that takes longer:
    times the time in the fastest over the time in this one."""
    found: defaultdict[str, float] = defaultdict(float)
    share_of_need = cache(lambda need: share(known.specs[need]))
    for job, configuration in holders:
        of = known.of(job)
        found[job.user] += of.discount(configuration) * share_of_need(of.needs[of.fastest])
    return found


def considered(users: int, alpha: float) -> int:
    """How many users of lowest progress are considered: ceil(alpha n), and one for alpha = 0."""
    return min(max(ceil(alpha * users), 1), users)
