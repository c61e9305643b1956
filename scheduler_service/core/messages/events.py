"""Events, which are all that goes into a step: the requests of users and operators, and the reports that are here."""

from scheduler_service.core.messages.measurements import (
    GraceWanted,
    MiniBatchMeasured,
    RunMeasured,
    SaveFailed,
    StepTooLong,
    SwitchingMeasured,
)
from scheduler_service.core.messages.refused_commits import SetAside
from scheduler_service.core.messages.requests import Request
from scheduler_service.core.model import RunKey, RunPhase
from scheduler_service.core.model.inventory import Inventory
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.saves import SaveResult
from scheduler_service.core.model.values import Micros


@dataclass(frozen=True, slots=True)
class FaultsSeen:
    """All devices of a node that are faulty, and why; the last such event counts."""

    name: str
    boot_id: str
    faults: tuple[tuple[int, str], ...]
    """(index, why), in order."""


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
    job_fault: bool = False
    """With a launch error: something that the job names, such as its command, cannot be used on the node."""


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
