"""The plan with which the search begins: the shortest job first, each where it completes first (the paper's JSQ+)."""

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler_service.policies.allox.matching.instance import FAR, Instance
from scheduler_service.policies.allox.matching.plan import Plan, plan
from scheduler_service.policies.allox.matching.problem import NOWHERE

_FULL: Final = int(FAR)


def greedy(instance: Instance, allowed: NDArray[np.bool_]) -> Plan:
    """Places each job on one of the kinds that it is allowed (jobs x kinds). A job that is allowed none is not placed."""
    kinds = [_Kind(slots.tolist()) for slots in instance.slots]
    next_free = [kind.next_free() for kind in kinds]
    times = np.where(allowed, instance.times, FAR)
    shortest = times.min(axis=1, initial=FAR)
    chosen = np.full(len(times), NOWHERE, np.int64)
    jobs = np.argsort(shortest, kind="stable")[: np.count_nonzero(shortest < FAR)]
    for job, row in zip(jobs.tolist(), times[jobs].tolist(), strict=True):
        done, best = min((free + time, kind) for kind, (free, time) in enumerate(zip(next_free, row, strict=True)))
        chosen[job] = best
        next_free[best] = kinds[best].give_job(done)
    return plan(instance, chosen, [np.array(kind.counts, np.int64) for kind in kinds])


class _Kind:
    """The slots of a kind, each with what it has been given."""

    def __init__(self, fresh: list[int]) -> None:
        self.fresh, self.begun = fresh, 0
        self.busy: list[tuple[int, int]] = []
        """When the slots that have jobs are free, and how many jobs each has: a heap."""
        self.counts: list[int] = []
        """How many slots have at least 1, 2, ... jobs."""

    def next_free(self) -> int:
        unused = self.fresh[self.begun] if self.begun < len(self.fresh) else _FULL
        return min(unused, self.busy[0][0]) if self.busy else unused

    def give_job(self, done: int) -> int:
        """Gives the slot that is free first one more job, which ends then. Returns when the next slot is free."""
        if self.begun < len(self.fresh) and (not self.busy or self.fresh[self.begun] <= self.busy[0][0]):
            jobs = 1
            self.begun += 1
            heapq.heappush(self.busy, (done, jobs))
        else:
            jobs = self.busy[0][1] + 1
            heapq.heapreplace(self.busy, (done, jobs))
        if jobs > len(self.counts):
            self.counts.append(0)
        self.counts[jobs - 1] += 1
        return self.next_free()
