"""Plans: what a policy wants done. A plan is a tuple of actions."""

from collections.abc import Callable
from typing import NamedTuple

from scheduler_service.core.model import Decision, Reason, RunKey
from scheduler_service.core.model.estimates import Sampling
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.sharing import PERIOD_US, Row
from scheduler_service.core.model.tenants.exchange import Deal, Lot
from scheduler_service.core.model.values import Micros, Vector


class Spot(NamedTuple):
    """The place where a task is to run."""

    node: int
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """Make runs hold their devices as one share group with these rows. Runs that are already in groups bring all of their
    group with them. If nothing is shared any more, each run holds its devices alone again."""

    rows: tuple[Row, ...]
    device_memory_mib: tuple[tuple[RunKey, int], ...] = ()
    """Memory that runs may use on each of their devices, if that changes."""
    period_us: Micros = PERIOD_US
    open: bool = False
    """The group remains even if nothing is shared, so that others may join."""


@dataclass(frozen=True, slots=True)
class Unshare:
    """Make the job, with all of its tasks, hold its devices alone; refused if another member of its share group uses one."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Retime:
    """Change the length of a share group's cycles. The stories of its members say why."""

    group: int
    period_us: Micros
    why: str


@dataclass(frozen=True, slots=True)
class BeginProbe:
    """Change how runs hold devices, and note in the stories of these jobs that this is tried. The policy remembers the previous
    rows, and ends the probe when it has measured the effect of the change."""

    jobs: tuple[int, ...]
    share: Share
    why: str


@dataclass(frozen=True, slots=True)
class EndProbe:
    """Note in the stories of these jobs what was measured, and what follows from it."""

    jobs: tuple[int, ...]
    share: Share | None
    """The rows to which the runs return; None: the change is kept."""
    why: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Restart a running elastic job with a different number of tasks."""

    job_id: int
    tasks: int
    why: str
    beyond: int = 0
    """How many of these tasks, the last ones, are beyond its guarantee: the job queues without them, and starts with as many
    of them as there is room for then (`Place.beyond`)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Start the job's next run, or the next element of an array, with a spot for each task in rank order. Gives up the job's
    earmarks on all nodes. Guaranteed: in cells that are bound to its virtual cluster."""

    job_id: int
    spots: tuple[Spot, ...]
    guaranteed: bool = False
    configuration: int = 0
    """The number of the job's configuration in which it starts."""
    why: str = ""
    """For people: why it starts in this configuration, or on devices that other runs hold."""
    share: Share | None = None
    """The share group that the run is in from its start, together with all runs that hold its devices. None: it holds its
    devices alone."""
    sample: Sampling | None = None
    """The launch is a sample of this configuration; None: it is to do the job's work."""
    beyond: int = 0
    """How many of the spots, the last ones, are for tasks of an elastic job beyond its guarantee. These tasks are added for
    this launch, and are opportunistic."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a running job elsewhere, with a spot for each task in rank order. The spots are taken immediately, and the job is
    told to stop when they are ready. Guaranteed: in cells that are bound to its virtual cluster."""

    job_id: int
    spots: tuple[Spot, ...]
    why: str
    guaranteed: bool = False
    share: Share | None = None
    """The share group that the next launch is in from the beginning of the migration, together with all runs that hold its
    devices. None: it holds its devices alone."""


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Make a migrating job give up its destination for a job with a right to the devices there. They are free immediately, and
    the migrating job stays where it is, or queues if it was already stopped for its migration."""

    job_id: int
    for_job: int


@dataclass(frozen=True, slots=True)
class SkipSamples:
    """Note that a queued job need not be sampled in these configurations, and that nothing is known about them."""

    job_id: int
    configurations: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop a best-effort job's run, with all of its tasks, for a waiting job that may preempt it; refused if the waiting job's
    claim is capped and trials have already preempted this job `cap` times. All jobs of its share group are stopped with it, so
    naming two of them is the same as naming one."""

    job_id: int
    for_job: int
    cap: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Park:
    """Park the job's run: all of its tasks leave their devices and stay in the memory of their nodes; refused if it is known
    that the run cannot be parked. If a node cannot park it, the run continues."""

    job_id: int
    why: str


@dataclass(frozen=True, slots=True)
class Unpark:
    """Resume a parked job as soon as its devices are idle; cancel the park of a job that is being parked."""

    job_id: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class AddEarmark:
    """Reserve `want` on the node for a waiting trial: what is free now, and what the victims release.

    A gang has one earmark for each of its nodes, all in one plan; `tasks` are the ranks that are to run on this node.
    """

    job_id: int
    node: int
    want: Vector
    victims: tuple[RunKey, ...]
    decision: Decision | None = None
    tasks: tuple[int, ...] = (0,)
    devices: tuple[tuple[int, ...], ...] = ()
    """In cells: the devices for each of the tasks."""
    configuration: int = 0
    """The configuration in which the job is to start."""
    why: str = ""
    """For people: why it is to start in this configuration."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a free cell to a virtual cluster, for one of its jobs that is about to use the cell."""

    vc: int
    pool: str
    level: str
    index: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Stop a job's run, with all of its tasks, for a job that has a right to its devices; limit an opportunistic run that is
    already stopping to the site's grace period. All jobs of its share group are stopped with it, so naming two of them is the
    same as naming one."""

    job_id: int
    for_job: int
    beyond: int = 0
    """Stop only this many of the tasks that the job has beyond its guarantee: it is resized and continues with the rest. 0:
    stop the whole job."""


@dataclass(frozen=True, slots=True)
class Promote:
    """Make a job guaranteed, with all of its share group: all of its devices are in cells that are bound to its virtual
    cluster."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Demote:
    """Take the guarantee from a job and all of its share group; they keep running as opportunistic."""

    job_id: int
    cause_job: int = 0


@dataclass(frozen=True, slots=True)
class Agree:
    """Exchange cells, as the postings of the two sides allow."""

    deal: Deal


@dataclass(frozen=True, slots=True)
class NoteIdle:
    """Note how many cells of a kind are idle now in a virtual cluster whose proxy is on."""

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

    posting: int


@dataclass(frozen=True, slots=True)
class DropEarmark:
    earmark: int
    why: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Write a memo of the policy, replacing the one about the same subject."""

    policy: str
    subject: str
    value: tuple[int | str, ...] | None
    """None: delete the memo."""
    job_id: int = 0
    """The job that this memo is deleted with when the job ends; 0: none."""
    due_us: Micros | None = None
    """When the policy is to be asked even if nothing else happens."""


@dataclass(frozen=True, slots=True)
class Delegate:
    """Make a plan outside the step, since it takes long. It arrives as the event PlanReady, or never: a policy that delegates
    remembers ASKED about the subject, with a time at which it asks again."""

    policy: str
    subject: str
    """Subject of the policy's memo."""
    question: Callable[[], tuple[int | str, ...]]
    """Returns the plan, in a form that only the policy knows. It can be pickled, and depends on nothing else."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Note why a queued job does not start now."""

    job_id: int
    reason: Reason
    detail: str = ""
    cause_job: int = 0


Trade = Agree | NoteIdle | OfferIdle | Withdraw


Sharing = Share | Unshare | Retime
Parks = Park | Unpark
Probing = BeginProbe | EndProbe
Guaranteeing = Reclaim | Promote | Demote
Starting = Place | SkipSamples
Earmarking = AddEarmark | DropEarmark


Changing = Sharing | Probing | Parks | Resize | Migrate | GiveWay
Action = Starting | Preempt | Earmarking | Wait | Remember | Delegate | Bind | Guaranteeing | Changing | Trade


Plan = tuple[Action, ...]
