"""Orders: what a node is told of its runs. Each says what is to hold of one run, and the generation of that word.

A state is a class, with what goes with it.
"""

from scheduler_service.core.model import Job, Run, RunKey, StopReason
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.sharing import Row
from scheduler_service.core.model.values import Micros


@dataclass(frozen=True, slots=True)
class GangPlace:
    """What a task of a gang is told about it. Ranks count through nodes in the order in which they are first used."""

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
    """Of the plan. An agent goes by the highest that it has heard from any member of the group."""
    rows: tuple[Row, ...]
    period_us: Micros
    active: tuple[int, ...]
    """The rows, by their places, in which this run executes. In the others it is parked."""
    device_memory_mib: int
    """What this run may use of each of its devices; 0: as much as runs may use."""
    parked_mib: int
    """What is kept of its node's memory for what it has on its devices while it is parked."""
    packed: bool = False
    """Its job asks to be packed, so others may come to execute at the same time, even if it is alone now."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a task is started from. `gang` is None for a job of one task."""

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
    """The task's process is there, and has nothing on its devices but a residue. `Running` after that resumes it."""

    time_limit_us: Micros = 0
    """For the park, counted from the first order to park. A node that cannot do it in this time refuses: the run goes on."""
    number: int = 0
    """Which park of the launch this is, from 1 on. It is the same for all tasks, by which a gang on several nodes knows it."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing of the run is left. It is told to exit, and has its grace period for that."""

    grace_us: Micros
    """Counted from the first order to stop."""
    reason: StopReason
    cause_job: int = 0
    """The job that needs the room, or 0."""
    resize_to: int = 0
    """For RESIZED: the number of tasks of the next launch, when the stop was decided or repeated. 0: another reason."""


Desired = Prepared | Warming | Running | Parked | Stopped


@dataclass(frozen=True, slots=True)
class Order:
    """What is to hold of a run on its node.

    An order with a generation that the node has, or an older one, changes nothing there. So an order may be repeated, and
    orders may overtake each other.
    """

    node: int
    key: RunKey
    generation: int
    """Grows with each change of what is to hold of this run, from 1 on."""
    desired: Desired
