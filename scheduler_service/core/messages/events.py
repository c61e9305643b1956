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
    """False: the spec's grace period is the site's default of the moment, not the user's word."""
    ends: tuple[tuple[int, JobState], ...] = ()
    """How those of its dependencies ended that are not live any more."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    job_id: int


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    job_id: int
    park: bool = False
    """Park it; if it cannot be parked, it saves its work and leaves."""
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
    """The launch that is to leave; 0: the present one."""
    why: str = ""
    """For the story of the job, if Ebb itself asks for it."""


@dataclass(frozen=True, slots=True)
class ResizeRequested:
    """An elastic job is to have so many tasks."""

    job_id: int
    tasks: int


@dataclass(frozen=True, slots=True)
class MigrateRequested:
    """A running job is to go on at another node, or at several: one for each task, or one for all."""

    job_id: int
    nodes: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...] = ()
    """For each task; empty: any that are idle."""


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
    grace_us: Micros | None = None
    """It stays then, whatever the runs of the job ask for."""
    grace_follows: bool = False
    """The grace period follows again from what the job's saves take."""
    skip_steps: int | None = None
    """The next launches count so many steps, from the first one on, without taking them; 0 takes it back."""
    share: ShareMode | None = None
    """How it holds the device of which it asks for a part."""


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
class NodeDeleteRequested:
    node: str


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
class PostRequested:
    """A virtual cluster offers cells of its own, or requests others'."""

    vc: str
    request_id: str
    kind: PostingKind
    cells: Cells
    bid: int | None = None
    """Device-microseconds of surplus: what a request pays at most, and an offer wants at least; None: as many as it has."""
    swap: Cells | None = None
    """Cells in return: what an offer wants, what a request gives."""
    expires_us: Micros = 0
    """When it leaves the board; 0: with its window."""


@dataclass(frozen=True, slots=True)
class WithdrawRequested:
    posting: int
    vc: str = ""
    """Whose it must be; empty: the site withdraws it."""


@dataclass(frozen=True, slots=True)
class AcceptRequested:
    """A virtual cluster takes an offer that it chose, or gives what a request asks for."""

    vc: str
    request_id: str
    posting: int
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
    generation: int = 0
    """Of the last order about it that the node took; 0: unknown."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """An agent connected: what its node is, and which runs it knows."""

    name: str
    boot_id: str
    inventory: Inventory
    runs: tuple[KnownRun, ...] = ()
    address: str = ""
    agent_version: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """In the order of names."""
    checkpoints_at: str = ""
    """Where other nodes fetch checkpoints (host:port); empty: nowhere."""


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """No sign of life from a node for longer than the site allows. Of one that is silent already: more runs that are untold."""

    name: str
    untold: tuple[RunKey, ...] = ()
    """Runs whose start nobody there was told of: no agent has been connected since they were placed."""


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
    """What became of a dump of the job by CRIU, for people; empty: there was none."""


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
    node_stopped: bool = False
    """Its agent was told to stop, and to end its runs first."""
    told: bool = False
    """An order to stop had reached its agent, so that the exit may be the answer to the signal."""
    done: bool = False
    """With exit code 0: the program had said that its work is done."""
    checkpoint: str = ""
    """What came of the job's checkpoint signal or command, for people."""
    not_fetched: str = ""
    """Why its checkpoint could not be had from another node, so that it did not begin."""
    out_of_device_memory: str = ""
    """How much of which device it used, if it was killed for that."""
    began_from: str = ""
    """The checkpoint that its program loaded, if it said so."""
    saved: str = ""
    """The last checkpoint that its program saved, if it said so."""
    save: SaveResult | None = None
    """Whether what it had done was saved; None: there was nothing to save, or its agent does not say."""


@dataclass(frozen=True, slots=True)
class RunParked:
    """Report `sequence` of a node: the run is parked."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    rung: str = ""
    """How, such as "cooperative" or "driver"."""
    moved_bytes: int = 0
    """What was moved to host memory, from all devices together."""
    residue_bytes: int = 0
    """What is left on each device, at most."""
    phases: tuple[tuple[str, Micros], ...] = ()
    """What the node's own phases of the park took, by name, in the order of names."""
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
    """Report `sequence` of a node: the run could not be parked and goes on, or it could not be resumed."""

    node: str
    boot_id: str
    sequence: int
    key: RunKey
    why: str = ""
    lost: bool = False
    """The process is gone, or could not go on and was killed."""


@dataclass(frozen=True, slots=True)
class PlanReady:
    """What a policy delegated has been made; `plan` is in words of the policy's own."""

    policy: str
    subject: str
    plan: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class NumbersLost:
    """The database is older than what was done under it, as an agent has shown: numbers may have been given that it does not
    know of."""


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
"""What people ask for: refused when too much of it waits."""


Report = RunStarted | RunReady | RunExited | RunParked | RunResumed | RunParkRefused


@dataclass(frozen=True, slots=True)
class ReportRefused:
    """What a report says cannot be made durable, again and again: it is counted, so that those behind it are taken, and its job
    is set aside."""

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
