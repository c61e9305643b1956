"""Orders: what nodes are told about their runs. Each has the desired state of one run, and the generation of that state.

Each desired state is a class with its own fields.
"""

from scheduler_service.core.model import Job, Run, RunKey, StopReason
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import Micros


@dataclass(frozen=True, slots=True)
class GangPlace:
    """A task's place in its gang. Node ranks follow the order in which nodes are first used."""

    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharePlan:
    """Which runs of a share group execute at the same time, and for how long. All members are told the same rows."""

    group: int
    generation: int
    """Generation of the plan. An agent uses the highest that it has received for any member of the group."""
    rows: tuple[Row, ...]
    period_us: Micros
    active: tuple[int, ...]
    """Indices of the rows in which this run executes. In the others it is parked."""
    device_memory_mib: int
    """Memory that this run may use on each of its devices; 0: as much as any run may use."""
    parked_mib: int
    """Memory of its node that is kept for what it has on its devices while it is parked."""
    packed: bool = False
    """Its job is to be packed, so others may start to execute at the same time, even if it is alone now."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that a task is started from. `gang` is None for a job of one task."""

    job: Job
    run: Run
    gang: GangPlace | None = None
    share: SharePlan | None = None
    """None: it holds its devices alone."""


@dataclass(frozen=True, slots=True)
class Prepared(Launch):
    """The task of a gang is ready to begin, and waits for the other tasks."""


@dataclass(frozen=True, slots=True)
class Running(Launch):
    """The task runs; one of a gang meets the others at the rendezvous in the job's row."""


@dataclass(frozen=True, slots=True)
class Warming(Launch):
    """The task is ready to begin, and waits for the end of the job's runs at other nodes."""


@dataclass(frozen=True, slots=True)
class Parked(Launch):
    """The task's process exists, with nothing on its devices but a residue. `Running` after that resumes it."""

    time_limit_us: Micros = 0
    """Limit for the park, counted from the first order to park. A node that cannot meet it refuses: the run continues."""
    number: int = 0
    """Number of this park of the launch, from 1 on: the same for all tasks, so that a gang on several nodes can identify it."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing of the run is left. It is told to exit within its grace period."""

    grace_us: Micros
    """Counted from the first order to stop."""
    reason: StopReason
    cause_job: int = 0
    """The job that needs its resources, or 0."""
    resize_to: int = 0
    """For RESIZED: the number of tasks of the next launch, when the stop was decided or repeated. 0: another reason."""


Desired = Prepared | Warming | Running | Parked | Stopped


@dataclass(frozen=True, slots=True)
class Order:
    """The desired state of a run on its node.

    An order with a generation that the node has, or an older one, changes nothing there. So orders may be repeated, and may
    overtake each other.
    """

    node: int
    key: RunKey
    generation: int
    """Grows with each change of the desired state of this run, from 1 on."""
    desired: Desired
