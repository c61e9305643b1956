"""The paper's examples and the baselines that they are compared with (sections 1, 2.2 and 3.1).

All slots are idle at 0 and all jobs arrive at 0. A cost is the sum of all completion times. `times` has a row for each job and
a column for each kind; kind 0 is the GPU.
"""

from collections.abc import Callable, Sequence

Times = Sequence[Sequence[int]]

TABLE_1 = [[10, 15], [8, 10], [10, 50], [5, 75], [10, 15], [10, 15]]
"""Of two users in turn; two GPUs and two CPUs."""
FIGURE_4 = [[40, 50], [40, 50], [40, 160], [40, 160]]
FIGURE_5 = [[10, 20], [10, 20], [20, 90], [20, 90]]
FIGURE_6 = [[3, 4], [4, 6], [5, 10]]


def jsq_plus(times: Times, slots: Sequence[int]) -> int:
    """Each job in turn takes the slot that completes it first: waiting time plus processing time, as section 2.2 defines it."""
    return _in_turn(times, slots, lambda free, time: free + time)


def jsq_as_printed(times: Times, slots: Sequence[int]) -> int:
    """The rule that gives the average of 100 in Figure 4a: a job never waits for a busy slot if another one is idle."""
    return _in_turn(times, slots, lambda free, time: (free, time))


def _in_turn(times: Times, slots: Sequence[int], key: Callable[[int, int], object]) -> int:
    free = {(kind, i): 0 for kind, count in enumerate(slots) for i in range(count)}
    total = 0
    for row in times:
        best = min(free, key=lambda slot: (key(free[slot], row[slot[0]]), slot))
        free[best] += row[best[0]]
        total += free[best]
    return total


def sjf_plus(times: Times, slots: Sequence[int]) -> int:
    """Whenever slots are free, the shortest job of all queues that have one of them starts (section 2.2)."""
    free = {(kind, i): 0 for kind, count in enumerate(slots) for i in range(count)}
    waiting = set(range(len(times)))
    total = 0
    while waiting:
        now = min(free.values())
        idle = [slot for slot, at in free.items() if at == now]
        _, job, slot = min((times[job][slot[0]], job, slot) for job in waiting for slot in idle)
        waiting.remove(job)
        free[slot] = now + times[job][slot[0]]
        total += free[slot]
    return total


def equal_share(times: Times, users: int) -> tuple[int, int]:
    """Cost and makespan of Figure 1a: each user has one slot of each kind and serves jobs in turn. A job takes the slot where
    it is faster, if that is idle when its turn comes, else the other one."""
    total = makespan = 0
    for user in range(users):
        free = [0, 0]
        for row in times[user::users]:
            now = min(free)
            idle = [kind for kind in (0, 1) if free[kind] == now]
            kind = min(idle, key=lambda kind: row[kind])
            free[kind] = now + row[kind]
            total += free[kind]
        makespan = max(makespan, *free)
    return total, makespan
