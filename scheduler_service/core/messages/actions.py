"""Plans: what a policy would have done. An action is one thing of them."""

from collections.abc import Callable
from typing import NamedTuple

from scheduler_service.core.model import Decision, Reason, RunKey
from scheduler_service.core.model.estimates import Sampling
from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.sharing import PERIOD_US, Row
from scheduler_service.core.model.tenants.exchange import Deal, Lot
from scheduler_service.core.model.values import Micros, Vector


class Spot(NamedTuple):
    """Where a task is to run."""

    node: int
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """Have runs hold their devices as one share group, with these rows. Runs that are in groups already bring all of their
    group with them. Where nothing is shared any more, each run holds its devices alone again."""

    rows: tuple[Row, ...]
    device_memory_mib: tuple[tuple[RunKey, int], ...] = ()
    """What runs may use of each of their devices, if that changes."""
    period_us: Micros = PERIOD_US
    open: bool = False
    """The group stays when nothing is shared, so that others may join."""


@dataclass(frozen=True, slots=True)
class Unshare:
    """Have the job hold its devices alone, all of its tasks; refused if another member of its share group uses one of them."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Retime:
    """Give the cycles of a share group another length. Its members read in their stories why."""

    group: int
    period_us: Micros
    why: str


@dataclass(frozen=True, slots=True)
class BeginProbe:
    """Change how runs hold devices, and note in the stories of these jobs that this is tried. The policy remembers what was
    there before, and ends the probe when it has measured what comes of the change."""

    jobs: tuple[int, ...]
    share: Share
    why: str


@dataclass(frozen=True, slots=True)
class EndProbe:
    """Note in the stories of these jobs what was measured, and what follows."""

    jobs: tuple[int, ...]
    share: Share | None
    """The rows to which the runs return; None: the change is kept."""
    why: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Have an elastic job that runs start again with another number of tasks."""

    job_id: int
    tasks: int
    why: str
    beyond: int = 0
    """How many of these, the last ones, are beyond its guarantee: the job queues without them, and starts with as many of them
    as there is room for then (`Place.beyond`)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Start the job's next run, a spot for each task in the order of ranks; of an array, its next element. Gives up the
    job's earmarks, wherever they are. Guaranteed: in cells that are bound to its virtual cluster."""

    job_id: int
    spots: tuple[Spot, ...]
    guaranteed: bool = False
    configuration: int = 0
    """In which of the job's configurations, by its number."""
    why: str = ""
    """For people: why in this configuration, or on devices that others hold."""
    share: Share | None = None
    """The share group that the run is in from its start: all others that hold its devices are in it, too. None: it has its
    devices alone."""
    sample: Sampling | None = None
    """The launch is a sample of this configuration; None: it is to do the job's work."""
    beyond: int = 0
    """How many of the spots, the last ones, are for tasks that an elastic job has beyond its guarantee. It has so many tasks
    more for this launch, and these are opportunistic."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Have a running job go on elsewhere, a spot for each task in the order of ranks. The places are taken at once, and the job
    is told to stop when they are ready. Guaranteed: in cells that are bound to its virtual cluster."""

    job_id: int
    spots: tuple[Spot, ...]
    why: str
    guaranteed: bool = False
    share: Share | None = None
    """The share group that the next launch is in from the beginning of the migration: all others that hold its devices are in
    it, too. None: it has its devices alone."""


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Have a job that migrates give up its destination, for a job that has a right to the devices there: they are free at once,
    and the job stays where it is, or queues if it was stopped for its migration already."""

    job_id: int
    for_job: int


@dataclass(frozen=True, slots=True)
class SkipSamples:
    """Note that nothing is known of these configurations of a queued job, so that it need not be sampled in them."""

    job_id: int
    configurations: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop a best-effort job's run, all of its tasks, for a waiting job that may preempt it; refused if trials had it preempted
    `cap` times already, where the claim of that job is capped. All jobs of its share group are stopped with it: to name two of
    them is to name one."""

    job_id: int
    for_job: int
    cap: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class Park:
    """Have the job's run leave its devices and stay in the memory of its nodes, all of its tasks; refused if it is known that
    it cannot be parked. If a node cannot do it, the run goes on."""

    job_id: int
    why: str


@dataclass(frozen=True, slots=True)
class Unpark:
    """Have a parked job go on, as soon as its devices are idle; of one that is being parked, take that back."""

    job_id: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class AddEarmark:
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
    configuration: int = 0
    """Of the job, in which it is to start."""
    why: str = ""
    """For people: why in this configuration."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Make a free cell one of a virtual cluster's, for a job of its that is about to use it."""

    vc: int
    pool: str
    level: str
    index: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Tell an opportunistic job's run, all of its tasks, to leave for a job that has a right to its devices; or, where it is
    leaving already, to do so within the site's grace period. All jobs of its share group are told the same: to name two of them
    is to name one."""

    job_id: int
    for_job: int
    beyond: int = 0
    """So many of the tasks that the job has beyond its guarantee leave, and no others: it is resized, and goes on with the
    rest. 0: the job leaves."""


@dataclass(frozen=True, slots=True)
class Promote:
    """The job's devices are all in cells that are bound to its virtual cluster: it holds them as guaranteed from now on, with
    all of its share group."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Demote:
    """The job loses its guarantee, with all of its share group, and runs on as opportunistic."""

    job_id: int
    cause_job: int = 0


@dataclass(frozen=True, slots=True)
class Agree:
    """Have cells change hands, as what the two sides posted allows."""

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

    posting: int


@dataclass(frozen=True, slots=True)
class DropEarmark:
    earmark: int
    why: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Write a memo of the policy, in place of the one about the same subject."""

    policy: str
    subject: str
    value: tuple[int | str, ...] | None
    """None: forget it."""
    job_id: int = 0
    """The memo goes with this job when that ends; 0: with none."""
    due_us: Micros | None = None
    """When the policy is to be asked, though nothing else happens."""


@dataclass(frozen=True, slots=True)
class Delegate:
    """Have a plan made outside of the step, since it takes long. It comes as the event PlanReady, or never: a policy that
    delegates remembers ASKED about the subject, with a time at which it asks again."""

    policy: str
    subject: str
    """Of the policy's memo."""
    question: Callable[[], tuple[int | str, ...]]
    """Gives the plan, in a form that only the policy knows. It can be pickled, and depends on nothing else."""


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
