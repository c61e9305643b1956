"""Events: what people ask for, and what agents report."""

from scheduler_service.core.messages.measurements import (
    GraceWanted,
    MiniBatchMeasured,
    RunMeasured,
    SaveFailed,
    StepTooLong,
    SwitchingMeasured,
)
from scheduler_service.core.messages.refused_commits import SetAside
from scheduler_service.core.model import Dependency, JobSpec, JobState, RunKey, RunPhase, ShareMode
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.saves import SaveResult
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
class FaultsSeen:
    """All devices of a node that are faulty, and why; the last such event counts."""

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


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run as its agent knows it when it connects."""

    key: RunKey
    phase: RunPhase
    generation: int = 0
    """Generation of the last order about it that the node accepted; 0: unknown."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """An agent connected: describes its node, and the runs that it knows."""

    name: str
    boot_id: str
    inventory: Inventory
    runs: tuple[KnownRun, ...] = ()
    address: str = ""
    agent_version: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """(name, value), in order of names."""
    checkpoints_at: str = ""
    """Address (host:port) from which other nodes fetch checkpoints; empty: none."""


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """No sign of life from a node for longer than the site allows. Sent again for a silent node if more runs are untold."""

    name: str
    untold: tuple[RunKey, ...] = ()
    """Runs whose start no agent there knows about: none has been connected since they were placed."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Report `sequence` of a node: the run's process began."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    log_path: str = ""
    program: str = ""
    """The file that was executed; empty: unknown."""
    restored: str = ""
    """For people: what became of a dump of the job by CRIU; empty: it had no dump."""


@dataclass(frozen=True, slots=True)
class RunReady:
    """Report `sequence` of a node: a task of a gang is prepared, and can be reached at this address."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    address: str
    port: int = 0


@dataclass(frozen=True, slots=True)
class RunExited:
    """Report `sequence` of a node: the run has ended and left nothing behind."""

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
    node_stopped: bool = False
    """Its agent was told to stop, and to end its runs first."""
    told: bool = False
    """An order to stop had reached its agent, so that the exit may be the answer to the signal."""
    done: bool = False
    """With exit code 0: the program had said that its work is done."""
    checkpoint: str = ""
    """For people: the result of the job's checkpoint signal or command."""
    not_fetched: str = ""
    """Why its checkpoint could not be fetched from another node, so that it did not begin."""
    out_of_device_memory: str = ""
    """How much of which device it used, if it was killed for that."""
    began_from: str = ""
    """The checkpoint that its program loaded, if it said so."""
    saved: str = ""
    """The last checkpoint that its program saved, if it said so."""
    save: SaveResult | None = None
    """Whether its work was saved; None: it had nothing to save, or its agent does not say."""


@dataclass(frozen=True, slots=True)
class RunParked:
    """Report `sequence` of a node: the run is parked."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    rung: str = ""
    """How it was parked, such as "cooperative" or "driver"."""
    moved_bytes: int = 0
    """Bytes that were moved to host memory from all devices together."""
    residue_bytes: int = 0
    """Maximum bytes that are left on any device."""
    phases: tuple[tuple[str, Micros], ...] = ()
    """Durations of the node's own phases of the park, by name, in order of names."""
    saves: bool = False
    """It can save its checkpoint and exit while it is parked."""


@dataclass(frozen=True, slots=True)
class RunResumed:
    """Report `sequence` of a node: the run executes again on its devices."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    rung: str = ""
    phases: tuple[tuple[str, Micros], ...] = ()


@dataclass(frozen=True, slots=True)
class RunParkRefused:
    """Report `sequence` of a node: the run could not be parked and continues, or it could not be resumed."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    why: str = ""
    lost: bool = False
    """The process disappeared, or could not continue and was killed."""


@dataclass(frozen=True, slots=True)
class PlanReady:
    """A plan that a policy delegated is ready; `plan` is in the policy's own format."""

    policy: str
    subject: str
    plan: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class NumbersLost:
    """The database is older than what was done under it, as an agent has shown: numbers of jobs and of other rows may have been
    given that it does not know."""


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


Report = RunStarted | RunReady | RunExited | RunParked | RunResumed | RunParkRefused


@dataclass(frozen=True, slots=True)
class ReportRefused:
    """A report whose commit was refused repeatedly: it is counted, so that the reports behind it are processed, and its job is
    set aside."""

    report: Report
    why: str


Event = (
    Request
    | Report
    | NodeSeen
    | NodeSilent
    | FaultsSeen
    | NumbersLost
    | SetAside
    | ReportRefused
    | PlanReady
    | RunMeasured
    | MiniBatchMeasured
    | SwitchingMeasured
    | GraceWanted
    | SaveFailed
    | StepTooLong
)
