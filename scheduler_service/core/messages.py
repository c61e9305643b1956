"""Everything that goes into a step and comes out of it: events, plans, replies, orders.

Events say what happened outside. Policies answer with plans, each a tuple of actions; `enact` carries a plan out whole or
not at all. Replies go to whoever sent the event; orders go to nodes.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

from scheduler_service.core.board import Deal
from scheduler_service.core.exchange import Lot, OrderKind
from scheduler_service.core.job import (
    Decision,
    Dependency,
    Job,
    JobEvent,
    JobSpec,
    JobState,
    Reason,
    Run,
    RunKey,
    RunPhase,
    StopReason,
)
from scheduler_service.core.journal import Change, Entry, net
from scheduler_service.core.rows import dataclass
from scheduler_service.core.topology import Inventory
from scheduler_service.core.values import Micros, Vector
from scheduler_service.core.vc import Pin, Quota, VcPolicy

# ---- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    user: str
    request_id: str
    spec: JobSpec
    grace_given: bool = True
    """False: the spec's grace period is the site's default of the moment, not the user's word."""
    ends: tuple[tuple[int, JobState], ...] = ()
    """How those of its dependencies ended that are not live any more."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    job_id: int


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    job_id: int


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    job_id: int


@dataclass(frozen=True, slots=True)
class HoldRequested:
    job_id: int


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    job_id: int


@dataclass(frozen=True, slots=True)
class RequeueRequested:
    job_id: int
    run: int = 0
    """The launch that is to leave; 0: the present one."""


@dataclass(frozen=True, slots=True)
class UpdateRequested:
    """What is None stays."""

    job_id: int
    priority: int | None = None
    time_limit_us: Micros | None = None
    """0 takes the limit away."""
    dependencies: tuple[Dependency, ...] | None = None
    ends: tuple[tuple[int, JobState], ...] = ()
    """As in Submitted."""


@dataclass(frozen=True, slots=True)
class FaultsSeen:
    """Which of a node's devices are faulty, and why: all of them, so that the last word counts."""

    name: str
    boot_id: str
    faults: tuple[tuple[int, str], ...]
    """(index, why), in order."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    node: str
    reason: str
    user: str
    evict: bool = False


@dataclass(frozen=True, slots=True)
class UndrainRequested:
    node: str


@dataclass(frozen=True, slots=True)
class FenceRequested:
    node: str
    user: str


@dataclass(frozen=True, slots=True)
class VcRequested:
    """A virtual cluster is to be created, or changed: what is None stays as it is, or is as a new one has it."""

    name: str
    create: bool
    quotas: tuple[Quota, ...] | None = None
    pins: tuple[Pin, ...] | None = None
    weight: int | None = None
    policy: VcPolicy | None = None


@dataclass(frozen=True, slots=True)
class VcDeleteRequested:
    name: str


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells that are alike, for a window of time."""

    pool: str
    level: str
    count: int
    begin_us: Micros
    """0: now."""
    end_us: Micros


@dataclass(frozen=True, slots=True)
class OrderPosted:
    """A virtual cluster offers cells of its own, or requests others'."""

    vc: str
    request_id: str
    kind: OrderKind
    cells: Cells
    bid: int | None = None
    """Device-microseconds of surplus: what a request pays at most, and an offer wants at least; None: as many as it has."""
    swap: Cells | None = None
    """Cells in return: what an offer wants, what a request gives."""
    expires_us: Micros = 0
    """When it leaves the board; 0: with its window."""


@dataclass(frozen=True, slots=True)
class WithdrawRequested:
    order: int
    vc: str = ""
    """Whose it must be; empty: the site withdraws it."""


@dataclass(frozen=True, slots=True)
class AcceptRequested:
    """A virtual cluster takes an offer that it chose, or gives what a request asks for."""

    vc: str
    request_id: str
    order: int
    count: int = 0
    """Of an offer: how many of its cells, and when; 0: as the offer has it."""
    begin_us: Micros = 0
    end_us: Micros = 0


@dataclass(frozen=True, slots=True)
class ReturnRequested:
    """An exchange is to end before its time: both sides ask for it."""

    exchange: int
    vc: str = ""
    """Who asks; empty: the site ends it."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run as its agent knows it when it connects."""

    key: RunKey
    phase: RunPhase


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """An agent connected: what its node is, and which runs it knows."""

    name: str
    boot_id: str
    inventory: Inventory
    runs: tuple[KnownRun, ...] = ()
    address: str = ""
    agent_version: str = ""


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """No sign of life from a node for longer than the site allows."""

    name: str


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Report `sequence` of a node: the run's process began."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    log_path: str = ""


@dataclass(frozen=True, slots=True)
class RunReady:
    """Report `sequence` of a node: a task of a gang is prepared, and can be reached there."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    address: str
    port: int = 0


@dataclass(frozen=True, slots=True)
class RunExited:
    """Report `sequence` of a node: the run is over and left nothing behind."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    exit_code: int = 0
    exit_signal: int = 0
    yielded: bool = False
    launch_error: str = ""
    unknown: bool = False
    out_of_memory: bool = False


JobRequest = (
    CancelRequested | SuspendRequested | ResumeRequested | HoldRequested | ReleaseRequested | RequeueRequested | UpdateRequested
)
NodeRequest = DrainRequested | UndrainRequested | FenceRequested
VcRequest = VcRequested | VcDeleteRequested
ExchangeRequest = OrderPosted | WithdrawRequested | AcceptRequested | ReturnRequested
Request = Submitted | JobRequest | NodeRequest | VcRequest | ExchangeRequest
"""What people ask for: refused when too much of it waits."""
Report = RunStarted | RunReady | RunExited
Event = Request | Report | NodeSeen | NodeSilent | FaultsSeen

# ---- plans -------------------------------------------------------------------------------------------------------------


class Spot(NamedTuple):
    """Where a task is to run."""

    node: int
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Start the job's next run, a spot for each task in the order of ranks; of an array, its next element. Gives up the
    job's earmarks, wherever they are. Guaranteed: in cells that are bound to its virtual cluster."""

    job_id: int
    spots: tuple[Spot, ...]
    guaranteed: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """Tell a best-effort job's run, all of its tasks, to leave for a trial; refused where it was preempted `cap` times
    already."""

    job_id: int
    trial: int
    cap: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Earmark:
    """Keep `want` on the node for a waiting trial: what is free now, and what the victims release.

    A gang has one for each of its nodes, all in one plan; `tasks` are the ranks that are to run on this one.
    """

    job_id: int
    node: int
    want: Vector
    victims: tuple[RunKey, ...]
    decision: Decision | None = None
    tasks: tuple[int, ...] = (0,)
    devices: tuple[tuple[int, ...], ...] = ()
    """In cells: which devices, for each of the tasks."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Make a free cell one of a virtual cluster's, for a job of its that is about to use it."""

    vc: int
    pool: str
    level: str
    index: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Tell an opportunistic job's run, all of its tasks, to leave for a job that has a right to its devices."""

    job_id: int
    for_job: int


@dataclass(frozen=True, slots=True)
class Promote:
    """The job's devices are all in cells that are bound to its virtual cluster: it holds them as guaranteed from now on."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Demote:
    """The job loses its guarantee, and runs on as opportunistic."""

    job_id: int
    cause_job: int = 0


@dataclass(frozen=True, slots=True)
class Agree:
    """Have cells change hands, as both sides' orders allow."""

    deal: Deal


@dataclass(frozen=True, slots=True)
class NoteIdle:
    """Note how many cells of a kind a virtual cluster, whose proxy is on, has idle now."""

    vc: int
    pool: str
    level: str


@dataclass(frozen=True, slots=True)
class OfferIdle:
    """Post an offer for a virtual cluster, as its proxy."""

    vc: int
    lot: Lot


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take a proxy's offer off the board."""

    order: int


@dataclass(frozen=True, slots=True)
class DropEarmark:
    operation: int
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Note why a queued job does not start now."""

    job_id: int
    reason: Reason
    detail: str = ""
    cause_job: int = 0


Trade = Agree | NoteIdle | OfferIdle | Withdraw
Action = Place | Preempt | Earmark | DropEarmark | Wait | Bind | Reclaim | Promote | Demote | Trade
Plan = tuple[Action, ...]

# ---- what comes out ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accepted:
    """Reply to Submitted and to requests about a job: the job, new or already there."""

    job_id: int


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """Reply to requests about a node."""

    node: int


@dataclass(frozen=True, slots=True)
class VcChanged:
    """Reply to requests about a virtual cluster."""

    vc: int


@dataclass(frozen=True, slots=True)
class OrderChanged:
    """Reply to requests about an offer or a request, new or already there."""

    order: int


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Reply to requests about exchanges; a swap makes two."""

    exchanges: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """Reply to NodeSeen: the node's id, its last report in the state, and everything that is to hold on it."""

    node: int
    acknowledged: int
    orders: "tuple[Order, ...]"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Reply to a report: it and all before it are in the state. `stale` when it came from another boot."""

    node: str
    sequence: int
    stale: bool = False


Reply = Accepted | NodeChanged | VcChanged | OrderChanged | Exchanged | Joined | Acknowledged | None


@dataclass(frozen=True, slots=True)
class GangPlace:
    """What a task of a gang is told about it. Ranks count through nodes in the order in which they are first used."""

    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Start a run; for a task of a gang: prepare it, and begin once its job has a rendezvous."""

    node: int
    run: Run
    job: Job
    gang: GangPlace | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    node: int
    key: RunKey
    grace_us: Micros
    reason: StopReason
    cause_job: int = 0


Order = Start | Stop


@dataclass(frozen=True)
class Step:
    """What one step did. `replies` has one entry for each event: a Reply, or the exception that refused it."""

    entries: Sequence[Entry]
    """Every row that was put, in order."""
    replies: tuple[Reply | Exception, ...]
    orders: tuple[Order, ...]
    log: tuple[JobEvent, ...]
    refused: tuple[str, ...] = ()
    """Plans that were undone, and why: a fault of a policy, worth a warning."""

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The net effect, which is what is made durable."""
        return net(self.entries)


class Rng(Protocol):
    """The randomness that a step is given; `random.Random` is one."""

    def randrange(self, stop: int, /) -> int: ...
