"""Results of a step: replies to events, and all that it changed and ordered."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from scheduler_service.core.messages.actions import Delegate, Plan
from scheduler_service.core.messages.orders import Order
from scheduler_service.core.model import JobEvent, RunKey
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.state.journal import Change, Entry, net


@dataclass(frozen=True, slots=True)
class Accepted:
    """Reply to Submitted and to requests about a job: the job, new or existing."""

    job_id: int


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """Reply to requests about a node."""

    node: int


@dataclass(frozen=True, slots=True)
class VcChanged:
    """Reply to requests about a virtual cluster."""

    vc: int
    demoted: tuple[RunKey, ...] = ()
    """Runs that lost their guarantee because of the request, in order."""


@dataclass(frozen=True, slots=True)
class PostingChanged:
    """Reply to requests about an offer or a request, new or existing."""

    posting: int


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Reply to requests about exchanges; a swap makes two."""

    exchanges: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Reply to NodeSeen: the node's ID, its last report in the state, and the desired states of all its runs."""

    node: int
    acknowledged: int
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Reply to a report: it and all before it are in the state. `stale` if it came from another boot."""

    node: str
    sequence: int
    stale: bool = False


Reply = Accepted | NodeChanged | VcChanged | PostingChanged | Exchanged | Joined | Acknowledged | None


@dataclass(frozen=True)
class Step:
    """The result of one step. `replies` has one entry for each event: a Reply, or the exception that refused it."""

    entries: Sequence[Entry]
    """Every row that was put, in order."""
    replies: tuple[Reply | Exception, ...]
    orders: tuple[Order, ...]
    log: tuple[JobEvent, ...]
    refused: tuple[str, ...] = ()
    """Plans that were undone, and why: a policy's bug, worth a warning."""
    delegated: tuple[Delegate, ...] = ()
    """Plans to make once this step is durable; dropped if it never is."""
    enacted: tuple[Plan, ...] = ()
    """The plans that were carried out."""

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The net effect of the step, which is what is made durable."""
        return net(self.entries)


class Rng(Protocol):
    """The source of randomness that a step is given, such as `random.Random`."""

    def randrange(self, stop: int, /) -> int: ...
