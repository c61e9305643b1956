"""Requests of users and operators: for jobs, nodes, virtual clusters, and exchanges of cells."""

from scheduler_service.core.model import Dependency, JobSpec, JobState, ShareMode
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.tenants.exchange import PostingKind
from scheduler_service.core.model.tenants.virtual_clusters import Pin, Quota, VcPolicy
from scheduler_service.core.model.values import Micros


@dataclass(frozen=True, slots=True)
class Submitted:
    user: str
    request_id: str
    spec: JobSpec
    grace_given: bool = True
    """False: the spec's grace period is the site's current default, not the user's choice."""
    ends: tuple[tuple[int, JobState], ...] = ()
    """How its dependencies that are not live any more ended."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    job_id: int


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    job_id: int
    park: bool = False
    """Park it; if it cannot be parked, it saves its work and exits."""
    park_only: bool = False
    """Park it, or leave it running."""


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
    """The launch that is to stop; 0: the current one."""
    why: str = ""
    """For the story of the job, if Ebb itself requests it."""


@dataclass(frozen=True, slots=True)
class ResizeRequested:
    """A request to change the number of tasks of an elastic job."""

    job_id: int
    tasks: int


@dataclass(frozen=True, slots=True)
class MigrateRequested:
    """A request to move a running job to other nodes: one for each task, or one for all."""

    job_id: int
    nodes: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...] = ()
    """Devices of each task; empty: any that are idle."""


@dataclass(frozen=True, slots=True)
class UpdateRequested:
    """A request to change a job. Fields that are None stay as they are."""

    job_id: int
    priority: int | None = None
    time_limit_us: Micros | None = None
    """0 removes the limit."""
    dependencies: tuple[Dependency, ...] | None = None
    ends: tuple[tuple[int, JobState], ...] = ()
    """As in Submitted."""
    grace_us: Micros | None = None
    """A fixed grace period, whatever the runs of the job request later."""
    grace_follows: bool = False
    """The grace period again follows from how long the job's saves take."""
    skip_steps: int | None = None
    """Number of first training steps that the next launches skip, counting them as done; 0 cancels the skip."""
    share: ShareMode | None = None
    """How it holds the device of which it requests a part."""


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
class NodeDeleteRequested:
    node: str


@dataclass(frozen=True, slots=True)
class VcRequested:
    """A request to create or change a virtual cluster. A field that is None is not changed, or gets its default."""

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
    """Cells of one kind, for a window of time."""

    pool: str
    level: str
    count: int
    begin_us: Micros
    """0: now."""
    end_us: Micros


@dataclass(frozen=True, slots=True)
class PostRequested:
    """A virtual cluster offers cells of its own, or requests those of others."""

    vc: str
    request_id: str
    kind: PostingKind
    cells: Cells
    bid: int | None = None
    """Device-microseconds of surplus: the most that a request pays, the least that an offer wants; None: as many as it has."""
    swap: Cells | None = None
    """Cells in return: those that an offer wants, or a request gives."""
    expires_us: Micros = 0
    """When it leaves the board; 0: with its window."""


@dataclass(frozen=True, slots=True)
class WithdrawRequested:
    posting: int
    vc: str = ""
    """The virtual cluster that must own the posting; empty: the site withdraws it."""


@dataclass(frozen=True, slots=True)
class AcceptRequested:
    """A virtual cluster takes an offer that it chose, or gives what a request asks for."""

    vc: str
    request_id: str
    posting: int
    count: int = 0
    """Number of cells to take from an offer (and, below, when); 0: as the offer says."""
    begin_us: Micros = 0
    end_us: Micros = 0


@dataclass(frozen=True, slots=True)
class ReturnRequested:
    """A request to end an exchange before its time, for which both sides must ask."""

    exchange: int
    vc: str = ""
    """Who asks; empty: the site ends it."""


JobRequest = (
    CancelRequested
    | SuspendRequested
    | ResumeRequested
    | HoldRequested
    | ReleaseRequested
    | RequeueRequested
    | ResizeRequested
    | MigrateRequested
    | UpdateRequested
)


NodeRequest = DrainRequested | UndrainRequested | FenceRequested | NodeDeleteRequested


VcRequest = VcRequested | VcDeleteRequested


ExchangeRequest = PostRequested | WithdrawRequested | AcceptRequested | ReturnRequested


Request = Submitted | JobRequest | NodeRequest | VcRequest | ExchangeRequest
"""Requests of users: refused when too many of them wait."""
