"""Scopes: a site, or a virtual cluster in its own cells, as seen by a policy that chooses which jobs start.

Most policies serve a queue in order. One that chooses among all queued jobs, and among their configurations, has a stage
`starts`, which is given a scope: the slots on which jobs can run, the jobs that hold them, and a way to start a job there.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler_service.core.engine import Proposals
from scheduler_service.core.messages import Plan, Rng
from scheduler_service.core.model import Job, JobSpec
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State

Ints = NDArray[np.int64]


class Slots(Protocol):
    """The slots of a scope at one time, by kind. Kinds have numbers from 0 on, given when they are asked for."""

    def kinds(self, spec: JobSpec) -> Sequence[int]:
        """The kinds of slots on which a job with this spec, which has no alternatives, can run."""
        ...

    def place_of_kind(self, kind: int) -> str:
        """In which part of the scope the slots of the kind are, such as a pool; empty: anywhere."""
        ...

    def is_free(self, kind: int) -> bool:
        """Whether a slot of the kind is free now."""
        ...

    def free_at(self, kind: int) -> Ints:
        """When each slot of the kind is free, the first one first; those that are free now, now."""
        ...

    def share(self, spec: JobSpec) -> float:
        """Which part of the scope a job with this spec holds: of devices, CPUs or memory, whichever is the largest."""
        ...


class Scope(Protocol):
    """A site without virtual clusters, or a virtual cluster."""

    @property
    def vc(self) -> str:
        """The name of the virtual cluster; empty: a site."""
        ...

    def slots(self, unknown_us: Micros) -> Slots:
        """The slots as they are now. A run of unknown length is taken to run for `unknown_us` in all."""
        ...

    def holders(self) -> Iterable[tuple[Job, int]]:
        """The jobs that hold slots, or for which slots are kept, and in which configuration; in the order of their ids."""
        ...

    def start(self, one: Job, where: str, why: str) -> Generator[Plan, str | None, bool]:
        """Starts a job, which has one configuration alone, in this part of the scope; or has opportunistic runs reclaimed that
        are in its way. `why`: for people. Returns False if there is no room for it."""
        ...

    def tell(self, jobs: Sequence[Job]) -> Proposals:
        """Tells these jobs why they wait, if that is not what they were told before."""
        ...


Starts = Callable[[State, Scope, Rng], Proposals]
"""Starts those of a scope's queued jobs that start now."""
