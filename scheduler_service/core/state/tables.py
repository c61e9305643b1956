"""The tables of the state and the indices over them, as the index functions see them; `State` puts the two together.

Each index is a function of the rows. `indices` keeps the indices up to date, one function for each table.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from types import MethodType
from typing import Any

from scheduler_service.core.cells.closeness import DeviceTree
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import cpus_of
from scheduler_service.core.model import (
    ENDED,
    Cluster,
    Earmark,
    Job,
    JobEvent,
    JobSpec,
    Node,
    NodeDevice,
    Reason,
    Run,
    RunKey,
    present,
)
from scheduler_service.core.model.claims import Claim
from scheduler_service.core.model.estimates import History
from scheduler_service.core.model.memo import Memo
from scheduler_service.core.model.operations import Operation
from scheduler_service.core.model.profiles import Measured, Switching
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.sharing import ShareGroup
from scheduler_service.core.model.tenants.exchange import (
    Booking,
    Exchange,
    ExchangeState,
    Kind,
    LedgerEntry,
    Posting,
    PostingState,
    Surplus,
)
from scheduler_service.core.model.tenants.idle_history import IdleCells
from scheduler_service.core.model.tenants.virtual_clusters import Binding, VirtualCluster
from scheduler_service.core.model.values import Mask, Micros, Vector, mask_of
from scheduler_service.core.state.exchange_index import ExchangeIndex
from scheduler_service.core.state.journal import Journal, Table
from scheduler_service.core.state.open_groups import OpenGroups
from scheduler_service.core.state.queue import NOBODY, Queue
from scheduler_service.core.state.queue_keys import ANY, LANE, OWN_LANES, Deadline, Lane, Named, stands
from scheduler_service.core.state.queue_order import OrderOf, QueueKey, QueueOrder
from scheduler_service.core.state.resources.candidates import Candidates
from scheduler_service.core.state.resources.free_resources import FreeResources
from scheduler_service.core.state.resources.idle_beside import IdleBeside
from scheduler_service.core.state.resources.idle_groups import IdleGroups
from scheduler_service.core.state.resources.open_nodes import OpenNodes
from scheduler_service.core.state.resources.server_loads import Loads, ServerLoads
from scheduler_service.core.state.resources.suitable_nodes import Suitable, SuitableNodes, asks_nothing
from scheduler_service.core.state.waiting_kinds import Kinds, WaitingKinds

CellKey = tuple[str, str, int]
"""Pool, level, index."""

NOTHING: tuple[set[int], set[tuple[str, str]], set[int]] = set(), set(), set()
"""Of `Tables.not_noted`. It is copied, and never changed."""

_NO_QUEUES: dict[Named, Queue] = {}

Reindex = Callable[["Tables", Any, Any], None]
"""Is told of a row that was there and of the row that is there now; None where there is none."""


class Tables:
    """Tables: cluster, jobs, runs, share groups, operations, nodes, devices, earmarks, vcs, bindings, and those of cell
    exchange (live rows only; of the ledger, none)."""

    def __init__(self, cluster: Cluster, settings: Settings, order_of: OrderOf, reindex: Mapping[str, Reindex]) -> None:
        """`order_of` gives the order of queues by the policy of a virtual cluster; `reindex`, by table, what brings its indices
        up to date."""
        self.settings = settings
        self.order_of = order_of
        self.site_order = order_of(None)
        """Of jobs of no virtual cluster."""
        self.keeps_order = bool(self.site_order.policy) or self.site_order.claim is Claim.REORDER
        """Whether some order in use depends on memos, or re-orders what runs."""
        self.introspects = self.site_order.introspects
        """Whether some policy in use introspects."""
        self.journal = Journal()
        self.put = self.journal.put
        self.log: list[JobEvent] = []
        self.unsettled = True
        """Something happened since the policies last ran that may let a job start."""
        self.longer = False
        """Since then jobs came to stand in queues, each behind another: for those before them this changes nothing."""
        self.board_changed = True
        """Something happened since the policies last ran that may let cells be exchanged."""
        self.turned: set[int] = set()
        """Jobs that came, went, began to run or ceased to since the policies last ran, where their order depends on memos."""
        self.charged_anew: set[tuple[str, str]] = set()
        """Policies and subjects that are charged with something else than when the policies last ran."""
        self.stirred: set[int] = set()
        """Nodes on which runs or share groups have changed since the policies last ran, where some policy introspects."""
        self.delegated: dict[tuple[str, str], Any] = {}
        """By policy and subject: what the policies have delegated since the last adopt."""
        self.not_noted = NOTHING
        """`turned`, `charged_anew` and `stirred` as the last adopt left them: an undone step leaves them so again, and what is
        put back is no news for policies."""
        self.bound_otherwise: set[int] = set()
        """Virtual clusters that have other cells bound than when the policies last ran, if any has a proxy."""

        self.free_resources = FreeResources()
        self.open_nodes = OpenNodes()
        self.suitable_nodes = SuitableNodes(settings.device_memory_limit_percent)
        self.idle_beside = IdleBeside(self.free_resources, self.open_nodes, self.suitable_nodes)
        self.host: FreeResources | None = None if settings.pools is None else FreeResources()
        """Where there are cells: of nodes with devices, what goes with none of these."""
        self.server_loads = ServerLoads()
        self.kept_candidates = Candidates()
        self.stale_candidates: dict[RunKey, None] = {}
        """Active runs that `kept_candidates` may not have as they are: `candidates` sees to that."""
        self.kept_idle_groups = IdleGroups()
        """Where there are no cells: `idle_groups` has them up to date."""
        self.kept_open_groups = OpenGroups()
        self.stale_open_groups: dict[int, None] = {}
        """Share groups that `kept_open_groups` may not have as they are: `open_groups` sees to that."""
        self.site_queues = {lane: Queue() for lane in OWN_LANES}
        """Those of `queues` for jobs of no virtual cluster: they are looked at in every step."""
        self.queues: dict[tuple[str, Lane], dict[Named, Queue]] = {("", at): {ANY: q} for at, q in self.site_queues.items()}
        """Virtual cluster (empty: none) and lane -> queued jobs, by what they name: a queue for each. Those for jobs of no
        virtual cluster are always there; others as long as a job is in them."""
        self.site_kinds = {lane: WaitingKinds() for lane in OWN_LANES}
        """Those of `site_queues`, by what they ask for: `kinds_waiting` brings them up to date."""
        self.without_devices = dict.fromkeys(OWN_LANES, 0)
        """Of `site_queues`, how many jobs may start though no device is idle (`may_do_without_devices`)."""
        self.vc_orders: dict[str, QueueOrder] = {}
        """Virtual cluster -> the order of its queues."""
        self.running: dict[str, Queue] = {}
        """Virtual cluster (empty: none) -> jobs that run, in the order of their queue, if its order may have them stopped."""
        self.memos_of: dict[int, set[tuple[str, str]]] = {}
        """Job -> the memos that go when it ends."""
        self.subjects: dict[tuple[str, str], set[int]] = {}
        """Policy and subject of a memo -> the jobs whose order depends on it."""
        self.charged: dict[tuple[str, str], Vector] = {}
        """Policy and subject -> what runs hold that are charged to the subject (`QueueOrder.charged_to`): devices, in
        millionths of one, and the CPUs of runs without devices."""
        self.due_memos: set[tuple[str, str]] = set()
        """Memos whose time was reached."""
        self.set_aside: set[int] = set()
        """Jobs for which nothing is done, since it could not be made durable."""
        self.beside: dict[Reason, set[int]] = {Reason.TOO_LARGE: set(), Reason.NODES_CLOSED: set()}
        """Jobs that are in no queue, as no node can take them, or none that is open."""
        self.nodes_changed = True
        """Nodes have come, gone, opened or closed since it was last decided which jobs no open node can take."""
        self.vc_ids: dict[str, int] = {}
        self.runs_on: dict[int, set[RunKey]] = {}
        self.active: dict[int, set[RunKey]] = {}
        """Job -> the tasks of its launch that have not ended."""
        self.ready: dict[int, int] = {}
        """Job -> how many of these are ready, and wait for the others."""
        self.begun: dict[int, int] = {}
        """Job -> how many of these have started."""
        self.unreachable: dict[int, int] = {}
        """Job -> how many of these are on silent nodes."""
        self.silent: set[int] = set()
        """The nodes that are silent."""
        self.node_ids: dict[str, int] = {}
        """The nodes of the cluster, by name."""
        self.deleted_ids: dict[str, int] = {}
        """The nodes that are none of the cluster any more. Should one come again, its number is the same."""
        self.idle_devices: dict[int, Mask] = {}
        """Node -> the healthy devices that no run holds and that are kept for none. Here and in what follows, where there are
        cells, the CPUs of a node that has no devices are in their place."""
        self.held_devices: dict[int, Mask] = {}
        """Node -> the devices that share groups hold, and runs that are in none."""
        self.groups_on: dict[int, set[int]] = {}
        """Node -> the share groups that hold devices of it."""
        self.faulty_devices: dict[int, Mask] = {}
        """Node -> the devices that are faulty."""
        self.kept_devices: dict[int, Mask] = {}
        """Node -> the devices that earmarks keep, idle or not yet."""
        self.kept_for_opportunistic: dict[int, Mask] = {}
        """Node -> of these, those that are kept for opportunistic jobs: whoever has a right to them takes them."""
        self.guaranteed_devices: dict[int, Mask] = {}
        """Node -> the devices that are held as guaranteed."""
        self.opportunistic: dict[str, int] = {}
        """Virtual cluster -> how many devices its opportunistic runs hold."""
        self.opportunistic_cpus: dict[str, int] = {}
        """Virtual cluster -> how many thousandths of a CPU those of them hold that have no devices."""
        self.opportunistic_runs: dict[str, set[RunKey]] = {}
        """Virtual cluster -> its opportunistic runs that hold devices."""
        self.without: dict[int, int] = {}
        """Job that need not run as opportunistic -> how many of its runs do."""
        self.within: dict[int, int] = {}
        """Elastic job -> how many of its runs are guaranteed. The others of such a job are beyond its guarantee."""
        self.guaranteed_runs: dict[str, set[RunKey]] = {}
        """Virtual cluster -> its guaranteed runs that hold devices."""
        self.overflowing: dict[str, set[int]] = {}
        """Virtual cluster -> its jobs that run as opportunistic, as they may, and would rather be guaranteed."""
        self.demoted: dict[str, set[int]] = {}
        """Virtual cluster -> its jobs that run as opportunistic because the cells that they were in are others' now."""
        self.pools: Pools | None = None
        if settings.pools is not None:
            self.pools = Pools(settings.pools, settings.host_percent, settings.device_memory_limit_percent)
        self.exchange_index = ExchangeIndex()
        self.idle_of: dict[int, set[Kind]] = {}
        """Virtual cluster -> the kinds of its cells of which it is noted how long they have been idle."""
        self.requests: dict[tuple[str, str], int] = {}
        self.earmarks_of: dict[int, set[int]] = {}
        """Waiting trial -> its earmark earmarks: one for each node on which something is kept for it."""
        self.promised_by: dict[RunKey, tuple[int, ...]] = {}
        """Victim -> the earmarks that wait for what it holds."""
        self.deadlines: list[tuple[Micros, Deadline, Any]] = []
        """(time, Deadline, key of the row as a tuple), soonest first."""
        self.dependents: dict[int, set[int]] = {}
        """Job -> those that wait for its end."""
        self.elements_of: dict[int, set[int]] = {}
        """Array -> its live elements."""
        self.news: dict[RunKey | int, Run | None] = {}
        """What nodes may have to be told of since the last adopt, in order: runs that are new, or of another generation, and
        jobs whose tasks are to meet. No key moves once it is there, so that an undo takes away the last ones."""

        self.operation_of: dict[int, int] = {}
        """Job -> the operation that is done to it, such as a park: nothing else is done to it meanwhile."""
        self.vacating_of: dict[int, int] = {}
        """Job -> its vacate or resize."""
        self.waiting_operations: set[int] = set()
        """Operations that wait for devices."""

        self.cluster = cluster
        self.cluster_table: Table[int, Cluster] = Table("cluster", MethodType(reindex["cluster"], self))
        self.jobs: Table[int, Job] = Table("job", MethodType(reindex["job"], self), lambda job: job.state in ENDED)
        self.runs: Table[RunKey, Run] = Table("run", MethodType(reindex["run"], self), lambda run: run.phase.over)
        self.share_groups: Table[int, ShareGroup] = Table("share_group", MethodType(reindex["share_group"], self))
        self.operations: Table[int, Operation] = Table("operation", MethodType(reindex["operation"], self))
        self.nodes: Table[int, Node] = Table("node", MethodType(reindex["node"], self))
        self.devices: Table[tuple[int, int], NodeDevice] = Table("device", MethodType(reindex["device"], self))
        self.earmarks: Table[int, Earmark] = Table("earmark", MethodType(reindex["earmark"], self))
        self.vcs: Table[int, VirtualCluster] = Table("virtual_cluster", MethodType(reindex["virtual_cluster"], self))
        self.bindings: Table[CellKey, Binding] = Table("cell_binding", MethodType(reindex["cell_binding"], self))
        open_posting, returned = PostingState.OPEN, ExchangeState.RETURNED
        self.postings: Table[int, Posting] = Table(
            "exchange_posting", MethodType(reindex["exchange_posting"], self), lambda p: p.state is not open_posting
        )
        self.exchanges: Table[int, Exchange] = Table(
            "exchange", MethodType(reindex["exchange"], self), lambda exchange: exchange.state is returned
        )
        self.ledger: Table[tuple[int, int, Booking], LedgerEntry] = Table("exchange_ledger", _no_index, lambda _: True)
        self.surpluses: Table[int, Surplus] = Table("exchange_surplus", _no_index)
        self.idle: Table[Kind, IdleCells] = Table("idle_cells", MethodType(reindex["idle_cells"], self))
        self.memos: Table[tuple[str, str], Memo] = Table("memo", MethodType(reindex["memo"], self))
        self.history: Table[tuple[str, str], History] = Table("history", _no_index)
        """By user and script."""
        self.measured: Table[RunKey, Measured] = Table("measurement", _no_index, durable=False)
        """The latest measurement of each run of which there is one, while a policy introspects."""
        self.switching: Table[RunKey, Switching] = Table("switching", _no_index, durable=False)
        """What the parks and resumes of runs take that take turns, while a policy introspects."""
        self.cluster_table.replace(0, cluster)

    def tables(self) -> tuple[Table[Any, Any], ...]:
        jobs = (self.cluster_table, self.jobs, self.runs, self.share_groups, self.earmarks, self.memos)
        cells = (self.nodes, self.devices, self.vcs, self.bindings, self.postings, self.exchanges)
        others = (self.ledger, self.surpluses, self.idle, self.history, self.operations, self.measured, self.switching)
        return (*jobs, *cells, *others)

    def queue(self, vc: str, lane: Lane, named: Named = ANY) -> Queue:
        """The jobs that name the same, in order; to look at, and not to change."""
        return self.queues.get((vc, lane), _NO_QUEUES).get(named, NOBODY)

    def waiting(self, vc: str, lane: Lane) -> Iterator[QueueKey]:
        """The lane of a virtual cluster, in order, whatever its jobs name. A job that is in several queues comes once."""
        queues = self.queues.get((vc, lane), {}).values()
        return iter(*queues) if len(queues) == 1 else (key for key, _ in groupby(merge(*queues)))

    def kinds_waiting(self, lane: Lane) -> Kinds:
        """The queued jobs of no virtual cluster, by what they ask for; a queue of each kind."""

        def key_in_lane(job: Job) -> QueueKey | None:
            """A number may have been that of a job of another lane, whose submit was undone."""
            return self.queue_key(job) if LANE[job.spec.job_class] is lane and not job.spec.vc else None

        return self.site_kinds[lane].kinds(self.site_queues[lane], self.jobs.rows, key_in_lane)

    def order_for(self, job: Job) -> QueueOrder:
        """The order of the job's queue."""
        return self.vc_orders.get(job.spec.vc, self.site_order)

    def place_of(self, job: Job) -> QueueKey:
        """Where the job is in its queue, or would be if it were queued."""
        order = self.vc_orders.get(job.spec.vc, self.site_order)
        if not order.policy:
            return order.key(job, None, self.settings)
        return order.key(job, self.memos.rows.get((order.policy, order.subject(job))), self.settings)

    def queue_key(self, job: Job) -> QueueKey | None:
        """Where the job is in its queue; None: it is in none."""
        return self.place_of(job) if stands(job) else None

    def device_tree(self, node: int) -> DeviceTree:
        """How close the devices of the node are to each other."""
        return self.kept_idle_groups.tree(node, self.nodes.rows, self.devices.rows)

    def runs_of(self, job_id: int) -> list[Run]:
        """The tasks of the job's launch that have not ended, in the order of their ranks."""
        keys = self.active.get(job_id, ())
        return [self.runs.rows[key] for key in (sorted(keys) if len(keys) > 1 else keys)]

    def mates_of(self, run: Run) -> list[Run]:
        """The tasks of the run's launch that have not ended, and the run itself. The launch may be one that waits for the end
        of the one before it."""
        if not run.awaits:
            return self.runs_of(run.job_id)
        tasks = range(len(self.jobs.rows[run.job_id].launch_spec.tasks()))
        keys = (RunKey(run.job_id, run.run, task) for task in tasks)
        return [self.runs.rows[key] for key in keys if key in self.runs.rows]

    def among(self, spec: JobSpec) -> Suitable | None:
        """The nodes on which the job may run, by what it asks of them beside resources; None: all. Where there are virtual
        clusters, cells say that."""
        if self.pools is not None or asks_nothing(spec):
            return None
        return self.suitable_nodes.among(spec, self.free_resources.count)

    def is_usable(self, spec: JobSpec, node: int) -> bool:
        """Whether the job may be placed on the node, if it fits there."""
        if not self.free_resources.is_open(node):
            return False
        among = self.among(spec)
        return among is None or bool(among.bits >> node & 1)

    def loads(self) -> Loads:
        """By node: what its runs ask for together, and its affinity. Where no policy introspects, costs a look at every run."""
        if not self.introspects:
            self.server_loads.stale.update(range(1, self.free_resources.count + 1))
        return self.server_loads.loads(self.free_resources.count, self.runs_on, self.runs.rows)

    def could_ever_take(self, job: Job) -> bool:
        """Whether the job would fit in one of its configurations if every node, up or not, were empty."""
        if not (job.spec.gang or job.spec.alternatives) and asks_nothing(job.spec):  # nearly always
            return self.free_resources.could_ever_fit(job.spec.demand)
        return any(
            self.free_resources.could_ever_fit_all(one.spec.tasks(), among)
            if (among := self.among(one.spec)) is not None or one.spec.gang
            else self.free_resources.could_ever_fit(one.spec.demand)
            for one in job.in_each_configuration()
        )

    def could_take_now(self, job: Job) -> bool:
        """Whether the job would fit in one of its configurations if every open node were empty."""
        if not (job.spec.gang or job.spec.alternatives) and asks_nothing(job.spec):  # nearly always
            return self.open_nodes.seats(job.spec.demand).bits != 0
        return any(
            self.open_nodes.could_fit_all(one.spec.tasks(), among)
            if (among := self.among(one.spec)) is not None or one.spec.gang
            else self.open_nodes.seats(one.spec.demand).bits
            for one in job.in_each_configuration()
        )

    def serves(self, job: Job) -> bool:
        """Whether it is one of those that are scheduled: a virtual cluster's where the site has such, else one without. Others
        are from before that was set otherwise: they run on, and wait forever."""
        return bool(job.spec.vc) is (self.pools is not None)

    def holds_faulty(self, run: Run) -> bool:
        """Whether a device of the run is faulty: what it leaves is then less than it holds."""
        faulty = self.faulty_devices.get(run.node, 0)
        return bool(faulty) and bool(faulty & mask_of(run.devices))

    def holders(self, node: int, index: int) -> list[Run]:
        """The runs that hold the device; in order. Looks at all runs on the node."""
        on = (self.runs.rows[key] for key in sorted(self.runs_on.get(node, ())))
        return [run for run in on if index in run.devices]

    def cpus_of(self, node: int) -> Mask:
        """Those that runs hold as others hold devices; none of a node that has devices, or where there are no cells."""
        if self.pools is None:
            return 0
        row = present(self.nodes.rows.get(node))
        if row is None or row.capacity.devices:
            return 0
        return (1 << cpus_of(row.capacity)) - 1


def _no_index(_old: object, _new: object) -> None:
    """Of a table of which nothing follows."""
