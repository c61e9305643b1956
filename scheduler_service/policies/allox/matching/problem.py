"""The matching problem and its solution. docs/matching.md explains the mathematics."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

NEVER: Final = int(np.iinfo(np.int64).max)
"""The time of a job on a kind of slot that it cannot use."""
NOWHERE: Final = -1
"""The kind, the slot, the position and the start of a job that no slot can run."""
LONGEST: Final = 1 << 58
"""Microseconds, some 9,000 years. No computation of this package overflows if all jobs end before that."""


class Problem(NamedTuple):
    """Queued jobs, and slots of several kinds. All slots of a kind run a job equally fast. All times are microseconds."""

    times: Ints
    """Jobs x kinds: how long each job runs on a slot of each kind (the paper's P), at least 1; NEVER where it cannot run."""
    free_at: tuple[Ints, ...]
    """For each kind, when each of its slots is next free (the paper's omega). An idle slot is free now."""
    arrived: Ints
    """When each job arrived (the paper's a)."""


class Matching(NamedTuple):
    """A kind, a slot of that kind and a position on that slot for each job. The sum of all waits and runs is least."""

    kind: Ints
    slot: Ints
    """An index into `free_at[kind]`."""
    position: Ints
    """Counted from the end: 1 runs last on its slot."""
    first: NDArray[np.bool_]
    """Whether the job is the next one to run on its slot."""
    start: Ints
    """When it starts, if all times are right."""
    cost: int
    """The sum over all placed jobs of completion time less arrival."""
    prices: tuple[Ints, ...]
    """The proof (`certificate.lower_bound`): for each kind, what one more job at position 1, 2, ... would cost in addition to
    its own time. Empty for a kind without slots."""


def check(problem: Problem) -> None:
    """Raises ValueError unless the shapes agree and all times are in range."""
    times, free_at, arrived = problem
    if times.shape != (len(arrived), len(free_at)):
        raise ValueError(f"times have the shape {times.shape}; expected ({len(arrived)}, {len(free_at)}): jobs x kinds")
    if times.size and times.min() < 1:
        job, kind = np.unravel_index(int(times.argmin()), times.shape)
        raise ValueError(f"job {job} takes {times[job, kind]} us on kind {kind}; a time is at least 1 us")
    longest = int(np.where(times == NEVER, 0, times).max(initial=0))
    latest = max((int(np.abs(slots).max(initial=0)) for slots in free_at), default=0)
    if len(times) * longest + latest >= LONGEST:
        raise ValueError(
            f"{len(times)} jobs of up to {longest} us, on slots that are free at up to {latest} us, may end at {LONGEST} us or "
            "later, which is out of range; cap the estimates of the longest jobs"
        )
