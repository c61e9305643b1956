"""The rows that the engine keeps: jobs, runs, nodes, devices, operations. Those of virtual clusters are in `vc`.

Every row is frozen: a change is a new row in its table (see `state`), so readers and the store can keep the rows they
were given without copying. All are plain values: what is true of the cluster, without behaviour. Those that change have
no slots, which makes changing them cheap (see `rows`).
"""

from enum import IntEnum
from typing import NamedTuple

from scheduler_service.core.rows import dataclass, derived
from scheduler_service.core.values import ZERO, Micros, Vector
from scheduler_service.core.vc import CellRequest, Guarantee


class JobClass(IntEnum):
    """FitGpp's two classes (section 2): TE is a trial, BE is best-effort. Values as in ebb.v1.JobClass."""

    TRIAL = 1
    BEST_EFFORT = 2


class JobState(IntEnum):
    """Values as in ebb.v1.JobState, which says what each means."""

    QUEUED = 1
    STARTING = 2
    RUNNING = 3
    STOPPING = 4
    UNREACHABLE = 5
    SUCCEEDED = 6
    FAILED = 7
    CANCELLED = 8
    SUSPENDED = 9
    TIMED_OUT = 10


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT})


class Reason(IntEnum):
    """Why a job is in its state. Values as in ebb.v1.JobReason, which says what each means."""

    NONE = 0
    BEHIND = 1
    NO_ROOM = 2
    TOO_LARGE = 3
    WAITING_FOR_VICTIMS = 4
    NOTHING_TO_PREEMPT = 5
    PREEMPTED = 6
    NODE_LOST = 7
    NODE_SILENT = 8
    CANCELLED = 9
    EXITED = 10
    SIGNALLED = 11
    LAUNCH_FAILED = 12
    EXIT_UNKNOWN = 13
    YIELDED = 14
    HELD = 15
    SUSPENDED = 16
    RESUMED = 17
    REQUEUED = 18
    TIME_LIMIT = 19
    OUT_OF_MEMORY = 20
    RETRYING = 21
    FAILED_ON_SEVERAL_NODES = 22
    DEPENDENCY = 23
    DEPENDENCY_NEVER = 24
    TASK_FAILED = 25
    GANG_NOT_READY = 26
    NODE_DRAINED = 27
    ELEMENTS_FAILED = 28
    ARRAY_LIMIT = 29
    DEVICE_FAULT = 30
    BEYOND_QUOTA = 31
    CELLS_FAULTY = 32
    RECLAIMED = 33
    NEVER_IN_QUOTA = 34


class RunPhase(IntEnum):
    """Where a launch stands. Values as in ebb.v1.RunPhase."""

    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    ENDED = 4
    READY = 5


class StopReason(IntEnum):
    """Why a run was told to stop. Values as in ebb.v1.StopReason."""

    PREEMPTED = 1
    CANCELLED = 2
    UNCLAIMED = 3
    SUSPENDED = 4
    REQUEUED = 5
    TIME_LIMIT = 6
    GANG = 7
    DRAINED = 8
    RECLAIMED = 9


class DependencyKind(IntEnum):
    """How the other job must end. Values as in ebb.v1.DependencyKind."""

    AFTER_OK = 1
    AFTER_ANY = 2
    AFTER_FAILED = 3


class NodeState(IntEnum):
    """Values as in ebb.v1.NodeState."""

    UP = 1
    SILENT = 2


class OperationKind(IntEnum):
    EARMARK = 1
    """Resources of a node kept for a waiting trial, together with the runs that were told to leave for it."""


class OperationPhase(IntEnum):
    VACATING = 1
    """Part of what is kept still belongs to victims that have not left yet."""
    READY = 2
    """Everything is kept; the deadline runs."""


class EventKind(IntEnum):
    """A line of a job's story. Values as in ebb.v1.JobEventKind."""

    SUBMITTED = 1
    PLACED = 2
    STARTED = 3
    PREEMPTING = 4
    PREEMPTED = 5
    VACATED = 6
    REQUEUED = 7
    CANCEL_REQUESTED = 8
    NODE_SILENT = 9
    NODE_RETURNED = 10
    ENDED = 11
    EARMARK_DROPPED = 12
    HELD = 13
    RELEASED = 14
    SUSPEND_REQUESTED = 15
    SUSPENDED = 16
    RESUMED = 17
    REQUEUE_REQUESTED = 18
    UPDATED = 19
    TIME_LIMIT = 20
    TASK_ENDED = 21
    GANG_READY = 22
    DEVICE_FAULT = 23
    RECLAIMED = 24
    GUARANTEED = 25
    OPPORTUNISTIC = 26


class RunKey(NamedTuple):
    """Names one task of one launch; every message of an agent carries it, so a late one cannot be taken for the present
    run's."""

    job_id: int
    run: int
    task: int = 0
    """The rank within a gang; 0 for a job of one task."""

    def __str__(self) -> str:
        return f"{self.job_id}.{self.run}/{self.task}" if self.task else f"{self.job_id}.{self.run}"


class TaskGroup(NamedTuple):
    """Tasks of a gang that are alike."""

    size: int
    demand: Vector
    """Of each task."""
    command: tuple[str, ...] = ()
    """Empty: the job's."""


class Dependency(NamedTuple):
    job_id: int
    kind: DependencyKind


class Retry(NamedTuple):
    """Which failed runs are followed by another."""

    limit: int = 0
    exit_codes: tuple[int, ...] = ()
    exit_signals: tuple[int, ...] = ()
    """With neither codes nor signals: every failure."""


class Array(NamedTuple):
    size: int
    at_once: int = 0
    """How many elements may be started and not ended; 0: any number."""


class Elements(NamedTuple):
    """How the elements of an array stand. Those from `begun` on have no row yet."""

    begun: int = 0
    live: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True)
class JobSpec:
    """What the user asked for; never changes."""

    command: tuple[str, ...]
    demand: Vector
    """Of all tasks together."""
    job_class: JobClass = JobClass.BEST_EFFORT
    grace_us: Micros = 0
    name: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""
    priority: int = 0
    time_limit_us: Micros = 0
    """0: none."""
    estimate_us: Micros = 0
    """How long it is expected to run in all; 0: unknown."""
    retry: Retry = Retry()
    gang: tuple[TaskGroup, ...] = ()
    """Empty: one task."""
    dependencies: tuple[Dependency, ...] = ()
    array: Array | None = None
    vc: str = ""
    """The virtual cluster that it belongs to; empty where the site has none."""
    guarantee: Guarantee = Guarantee.GUARANTEED
    cells: CellRequest = CellRequest()

    def tasks(self) -> tuple[Vector, ...]:
        """What each task needs, in the order of their ranks."""
        return tuple(group.demand for group in self.gang for _ in range(group.size)) if self.gang else (self.demand,)


@dataclass(frozen=True)
class Job:
    id: int
    spec: JobSpec
    user: str
    request_id: str
    """Empty when the client gave none."""
    submitted_us: Micros
    state: JobState = JobState.QUEUED
    reason: Reason = Reason.NONE
    detail: str = ""
    cause_job: int = 0
    """The job behind the reason, or 0."""
    run: int = 0
    """The current or last launch, counted from 1."""
    requeued: bool = False
    """It has run before, and so stands before those that have not (FitGpp section 3: the top of the queue)."""
    preempted_for_trial: int = 0
    """PreemptionCount of Eqn 4: counts preemptions by trials, when the signal is decided."""
    cancel_requested: bool = False
    started_us: Micros | None = None
    ended_us: Micros | None = None
    exit_code: int = 0
    exit_signal: int = 0
    priority: int = 0
    time_limit_us: Micros = 0
    held: bool = False
    suspend_requested: bool = False
    retries: int = 0
    """Failed runs that were followed by another."""
    eligible_us: Micros | None = None
    """It does not start before; None: at once."""
    ran_us: Micros = 0
    """How long its launches have run, those that are over."""
    limit_us: Micros | None = None
    """When the time limit of the running launch is over."""
    start_by_us: Micros | None = None
    """When every task of the gang that is being started must run."""
    rendezvous: str = ""
    """Where the tasks of the launch meet (host:port), once all are ready."""
    seats: tuple[int, ...] = ()
    """Of a gang: the node of each task of the current or last launch, by rank."""
    failed_on: tuple[int, ...] = ()
    """Nodes on which runs failed."""
    avoid: tuple[int, ...] = ()
    """Nodes on which the last launch did not come together: the next one tries others first."""
    verdict: Reason = Reason.NONE
    """What the first task that failed did, while other tasks are still there."""
    left: bool = False
    """Some task left because it was told to, while other tasks are still there."""
    waits_for: tuple[Dependency, ...] = ()
    """Of its dependencies, those that do not hold yet."""
    elements: Elements | None = None
    """For an array."""
    array_job: int = 0
    """For an element: its array, or 0."""
    array_index: int = 0


@dataclass(frozen=True)
class Run:
    """One task of one launch of a job: what it holds on its node until it has ended."""

    job_id: int
    run: int
    node: int
    devices: tuple[int, ...]
    """Where there are cells, and the node has no devices: the CPUs whose share of the node it holds."""
    demand: Vector
    phase: RunPhase
    placed_us: Micros
    started_us: Micros | None = None
    ended_us: Micros | None = None
    log_path: str = ""
    stop_reason: StopReason | None = None
    stop_grace_us: Micros = 0
    stop_us: Micros | None = None
    """When it was told to stop."""
    stop_for: int = 0
    """The trial that needs the room, or 0."""
    exit_code: int = 0
    exit_signal: int = 0
    yielded: bool = False
    """It saved its work and left because it was told to."""
    lost: bool = False
    """It ended with its node, or nobody knows how it ended."""
    task: int = 0
    ready_at: str = ""
    """Of a task of a gang, once it is ready: where it can be reached (host:port)."""
    guarded_us: Micros | None = None
    """Until then no trial may have it preempted."""
    vc: str = ""
    """Of its job."""
    guaranteed: bool = False
    """It holds cells of its virtual cluster; False: it holds devices as long as nobody has a right to them."""

    @property
    def given(self) -> tuple[int, ...]:
        """The devices that it is told to use. CPUs are counted, and nobody is told which are his."""
        return self.devices if self.demand.devices else ()

    @derived
    def key(self) -> RunKey:
        return RunKey(self.job_id, self.run, self.task)


@dataclass(frozen=True)
class Node:
    id: int
    """Counts up as nodes first appear; the order in which nodes are tried."""
    name: str
    boot_id: str
    state: NodeState
    capacity: Vector
    levels: tuple[str, ...]
    since_us: Micros
    """When it entered its state."""
    sequence: int = 0
    """The last report of this boot that is in the state."""
    address: str = ""
    agent_version: str = ""
    drained_us: Micros | None = None
    """Since when nothing new is placed on it; None: it is open."""
    drain_reason: str = ""
    drain_user: str = ""
    """Empty: Ebb itself."""
    strikes: int = 0
    """Failures that were this node's fault, as far as can be told, less what went well since."""


@dataclass(frozen=True)
class NodeDevice:
    """A device of a node. Which runs hold it is told by the runs."""

    node: int
    index: int
    uuid: str
    model: str
    memory_mib: int
    path: tuple[int, ...] = ()
    numa_node: int | None = None
    link_domain: int | None = None
    """Devices of the node with the same number reach each other over NVLink or NVSwitch."""
    fault: str = ""
    """Why nothing new is placed on it; empty for a healthy one."""


@dataclass(frozen=True)
class Operation:
    """Something that takes several phases and must survive a change of leader. Here: an earmark.

    What is kept (`kept`) is neither free nor owned; what is still missing (`want - kept`) is promised by `victims`.
    """

    id: int
    kind: OperationKind
    phase: OperationPhase
    job_id: int
    node: int
    want: Vector
    kept: Vector = ZERO
    victims: tuple[RunKey, ...] = ()
    created_us: Micros = 0
    deadline_us: Micros | None = None
    tasks: tuple[int, ...] = (0,)
    """The ranks of the job's tasks that are to run there."""
    devices: tuple[tuple[int, ...], ...] = ()
    """In cells: the devices (CPUs, as of a run) that are kept, for each of these tasks; empty: any that are free then."""


@dataclass(frozen=True)
class Cluster:
    """The one row about the cluster as a whole."""

    id: str
    seed: int
    next_job: int = 1
    next_node: int = 1
    next_operation: int = 1
    next_vc: int = 1
    clock_us: Micros = 0
    """The time of the last step; time never goes back behind it."""
    next_order: int = 1
    next_exchange: int = 1


@dataclass(frozen=True, slots=True)
class CandidateScore:
    """One run as a preemption decision saw it (Eqns 1-4)."""

    key: RunKey
    node: int
    demand: Vector
    node_free: Vector
    size: float
    grace_us: Micros
    score: float
    preempted_for_trial: int
    sufficient: bool
    chosen: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """Why these victims: kept in the story of the trial and of each victim."""

    trial: int
    node: int
    demand: Vector
    rule: str
    s: float
    cap: int
    max_size: float
    max_grace_us: Micros
    considered: int
    candidates: tuple[CandidateScore, ...]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A line of a job's story."""

    job_id: int
    at_us: Micros
    kind: EventKind
    run: int = 0
    node: int = 0
    reason: Reason = Reason.NONE
    cause_job: int = 0
    exit_code: int = 0
    exit_signal: int = 0
    text: str = ""
    decision: Decision | None = None
