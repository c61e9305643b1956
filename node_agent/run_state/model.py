"""The agent's terms: runs, their desired states, reports. Plain frozen values, shared by reconcile, spool, executor and
transport."""

import functools
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from node_agent.run_state.park_state import NEVER_PARKED, ParkState
from node_agent.run_state.run_key import RunKey as RunKey
from node_agent.run_state.share_plan import SharePlan


class RunPhase(IntEnum):
    """Values as in ebb.agent.v1.RunPhase, which says what each means."""

    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    ENDED = 4
    READY = 5
    PREPARING = 6
    PARKING = 7
    PARKED = 8
    RESUMING = 9
    WARMING = 10


class StopReason(IntEnum):
    """Values as in ebb.agent.v1.StopReason."""

    UNSPECIFIED = 0
    PREEMPTED = 1
    CANCELLED = 2
    UNCLAIMED = 3
    SUSPENDED = 4
    REQUEUED = 5
    TIME_LIMIT = 6
    GANG = 7
    DRAINED = 8
    RECLAIMED = 9
    RESIZED = 10
    SAMPLED = 40
    MIGRATED = 46


SAVES = frozenset(
    {
        StopReason.PREEMPTED,
        StopReason.SUSPENDED,
        StopReason.REQUEUED,
        StopReason.TIME_LIMIT,
        StopReason.DRAINED,
        StopReason.RECLAIMED,
        StopReason.RESIZED,
        StopReason.MIGRATED,
    }
)
"""Reasons to stop a run after which its saved work may still be wanted."""


class Process(NamedTuple):
    """The leader of a run's process group."""

    pid: int
    start_ticks: int
    """Start time from /proc, which distinguishes it from a later owner of its pid; 0 if only its group is left."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The place of a task in its gang, and where rank 0 waits for the others: empty and 0 until all are ready."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: tuple[str, ...]
    master_address: str = ""
    master_port: int = 0


class CheckpointAt(NamedTuple):
    """Another node that has the last checkpoint of a job, and where its agent serves it."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The specification from which a run is launched."""

    key: RunKey
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""
    name: str = ""
    user: str = ""
    devices: tuple[int, ...] = ()
    memory_mib: int = 0
    """Requested host memory; 0: not given."""
    array_index: int | None = None
    gang: Gang | None = None
    """None for a job of one task."""
    inherited: tuple[tuple[str, str], ...] = ()
    """Variables that the job inherits from the environment in which it was submitted."""
    configuration: int = 0
    """The number of the job's configuration that the run is launched in."""
    checkpoint_signal: str = ""
    """Signal that asks the program to save when stopped: a name without SIG, and perhaps seconds until SIGTERM (USR1@60)."""
    checkpoint_command: str = ""
    """Command for /bin/sh that saves the program's work when the run is stopped."""
    snapshots: tuple[str, ...] = ()
    """Digests of the snapshots to unpack before the run starts."""
    grace: float | None = None
    """Seconds between the stop signal and the kill that the job asks for; None: unknown."""
    min_tasks: int = 0
    """Minimum (here) and maximum number of tasks of an elastic job. 0: the number is fixed."""
    max_tasks: int = 0
    share: SharePlan | None = None
    """None: the run does not share its devices."""
    source: CheckpointAt | None = None
    """The node where the job ran last, if that is another one and its checkpoints can be fetched."""
    skip_steps: int = 0
    """Number of steps, from the job's first one on, that the program counts without taking them."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task of a gang is ready to begin, and waits until all tasks are."""

    launch: LaunchSpec
    generation: int

    @property
    def key(self) -> RunKey:
        return self.launch.key


@dataclass(frozen=True, slots=True)
class Warming:
    """The run is to start here when it has ended on another node: it is ready, and waits."""

    launch: LaunchSpec
    generation: int

    @property
    def key(self) -> RunKey:
        return self.launch.key


@dataclass(frozen=True, slots=True)
class Running:
    """The run has a process."""

    launch: LaunchSpec
    generation: int

    @property
    def key(self) -> RunKey:
        return self.launch.key


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing of the run is left: it gets SIGTERM, and SIGKILL `grace` seconds after it was first to be stopped."""

    key: RunKey
    generation: int
    grace: float
    reason: StopReason = StopReason.UNSPECIFIED
    cause_job: int = 0
    resize_to: int = 0
    """For RESIZED: the number of tasks of the next run."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The run is suspended in place: its device memory is in host memory, and its processes are stopped."""

    launch: LaunchSpec
    generation: int
    time_limit: float
    """Seconds. After that the run continues, and the agent reports that it refuses."""
    number: int = 0
    """Number of this park within the launch, the same for all tasks; 0: the scheduler is older, and does not say."""

    @property
    def key(self) -> RunKey:
        return self.launch.key


Desired = Prepared | Warming | Running | Stopped | Parked
"""The desired state of a run. Its generation, from 1 on, grows with each change."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The agent's record of a run; one row of the spool. Times are seconds of the monotonic clock of this boot."""

    key: RunKey
    phase: RunPhase
    launch: LaunchSpec | None = None
    """Kept until the process is known, so that a restarted agent can finish a launch; with a checkpoint signal or command,
    until the run has ended."""
    pid: int = 0
    start_ticks: int = 0
    """Start time from /proc, which distinguishes the process from a later owner of its pid."""
    log_path: str = ""
    stop_received: float | None = None
    stop_deadline: float | None = None
    signalled: bool = False
    """SIGTERM was sent; it is not sent twice."""
    ended_at: float | None = None
    """Seconds since 1970."""
    stop_reason: StopReason = StopReason.UNSPECIFIED
    stop_cause: int = 0
    port: int = 0
    """The port that is kept for its gang to meet at."""
    memory_mib: int = 0
    """The most memory that it may use; 0: any amount."""
    oom_kills: int = 0
    """The kernel's count of out-of-memory kills when the run was launched."""
    out_of_memory: bool = False
    """It used more than it may, and is being killed for that."""
    generation: int = 0
    """Generation of its desired state, as last received; 0: written by an agent that knew no generations."""
    checkpoint_asked: bool = False
    """Its checkpoint signal was sent, or its checkpoint command began."""
    checkpoint: str = ""
    """The result of that, for people."""
    stop_resize_to: int = 0
    """Number of tasks of the next run, for the stop reason RESIZED."""
    to_park: bool = False
    """The scheduler wants it parked."""
    park_limit: float = 0.0
    """Seconds that the park may take."""
    park: ParkState = NEVER_PARKED
    share: SharePlan | None = None
    """None: it does not share its devices."""
    gang_size: int = 1
    """Number of tasks of the launch."""
    gang_nodes: int = 1
    device_memory: str = ""
    """If it exceeded its memory on a shared device: how much it used of which device, and how much it may."""
    park_number: int = 0
    """Number of the desired park within the launch, by the scheduler's count; 0: an older scheduler did not say."""


@functools.cache
def short_id(unique: str) -> str:
    """Return enough of a unique ID to name a folder by."""
    return re.sub(r"[^A-Za-z0-9]", "", unique)[:12] or "none"


def clean(text: str, limit: int = 0) -> str:
    """Return the text so that it can be sent, stored and shown anywhere: nothing that is not Unicode, or that would move a
    cursor or break a line, and at most `limit` bytes (0: any)."""
    shown = text if text.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in text)
    data = shown.encode(errors="replace")
    if 0 < limit < len(data):
        data = data[: limit - 3] + "\u2026".encode()
    return data.decode(errors="ignore")
