"""The tables of the state and the indices over them, as the index functions see them; `State` combines the two.

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
from scheduler_service.core.state.pending import Pending
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
"""(pool, level, index)"""

_NO_QUEUES: dict[Named, Queue] = {}

Reindex = Callable[["Tables", Any, Any], None]
"""Updates the indices for the previous row and the current row; None: there was, or is, no row."""


class Tables:
    """Tables: cluster, jobs, runs, share groups, operations, nodes, devices, earmarks, vcs, bindings, and those of the cell
    exchange. They have live rows only; the ledger has no rows in memory."""

    def __init__(self, cluster: Cluster, settings: Settings, order_of: OrderOf, reindex: Mapping[str, Reindex]) -> None:
        """`order_of` returns the order of queues for the policy of a virtual cluster; `reindex` has, for each table, the
        function that updates its indices."""
        self.settings = settings
        self.order_of = order_of
        self.site_order = order_of(None)
        """Order of jobs without a virtual cluster."""
        self.keeps_order = bool(self.site_order.policy) or self.site_order.claim is Claim.REORDER
        """Whether some order in use depends on memos, or reorders running jobs."""
        self.introspects = self.site_order.introspects
        """Whether some policy in use introspects."""
        self.journal = Journal()
        self.put = self.journal.put
        self.log: list[JobEvent] = []
        self.pending = Pending(policies=True, market=True, inventory=True)
        self.adopted_pending = Pending()
        """`pending` at the last adopt. Undoing a step restores it, with all flags set: rows that are put back are no news."""
        self.delegated: dict[tuple[str, str], Any] = {}
        """Policy and subject -> what the policies have delegated since the last adopt."""

        self.free_resources = FreeResources()
        self.open_nodes = OpenNodes()
        self.suitable_nodes = SuitableNodes(settings.device_memory_limit_percent)
        self.idle_beside = IdleBeside(self.free_resources, self.open_nodes, self.suitable_nodes)
        self.host: FreeResources | None = None if settings.pools is None else FreeResources()
        """On a site with cells: the resources of nodes with devices that belong to none of the devices."""
        self.server_loads = ServerLoads()
        self.kept_candidates = Candidates()
        self.stale_candidates: dict[RunKey, None] = {}
        """Active runs that may be out of date in `kept_candidates`; `candidates` updates them."""
        self.kept_idle_groups = IdleGroups()
        """Used on a site without cells; `idle_groups` brings it up to date."""
        self.kept_open_groups = OpenGroups()
        self.stale_open_groups: dict[int, None] = {}
        """Share groups that may be out of date in `kept_open_groups`; `open_groups` updates them."""
        self.site_queues = {lane: Queue() for lane in OWN_LANES}
        """The `queues` for jobs without a virtual cluster, which every step looks at."""
        self.queues: dict[tuple[str, Lane], dict[Named, Queue]] = {("", at): {ANY: q} for at, q in self.site_queues.items()}
        """Virtual cluster (empty: none) and lane -> a queue for each `Named` of queued jobs. The queues for jobs without a
        virtual cluster always exist; the others exist while a job is in them."""
        self.site_kinds = {lane: WaitingKinds() for lane in OWN_LANES}
        """The jobs of `site_queues` by what they request; `kinds_waiting` brings them up to date."""
        self.without_devices = dict.fromkeys(OWN_LANES, 0)
        """How many jobs of `site_queues` may start even if no device is idle (`may_do_without_devices`)."""
        self.vc_orders: dict[str, QueueOrder] = {}
        """Virtual cluster -> the order of its queues."""
        self.running: dict[str, Queue] = {}
        """Virtual cluster (empty: none) -> running jobs, in the order of their queue, if its order may preempt them."""
        self.memos_of: dict[int, set[tuple[str, str]]] = {}
        """Job -> the memos that are deleted when it ends."""
        self.subjects: dict[tuple[str, str], set[int]] = {}
        """Policy and subject of a memo -> the jobs whose order depends on it."""
        self.charged: dict[tuple[str, str], Vector] = {}
        """Policy and subject -> what the runs charged to the subject hold (`QueueOrder.charged_to`): devices, in millionths of
        one, and the CPUs of runs without devices."""
        self.due_memos: set[tuple[str, str]] = set()
        """Memos whose time was reached."""
        self.set_aside: set[int] = set()
        """Jobs for which nothing is done, since a change for them could not be made durable."""
        self.beside: dict[Reason, set[int]] = {Reason.TOO_LARGE: set(), Reason.NODES_CLOSED: set()}
        """Jobs that are in no queue, because no node can take them, or no open node can."""
        self.vc_ids: dict[str, int] = {}
        self.runs_on: dict[int, set[RunKey]] = {}
        self.active: dict[int, set[RunKey]] = {}
        """Job -> the tasks of its launch that have not ended."""
        self.ready: dict[int, int] = {}
        """Job -> how many of these tasks are ready, and wait for the others."""
        self.begun: dict[int, int] = {}
        """Job -> how many of these tasks have started."""
        self.unreachable: dict[int, int] = {}
        """Job -> how many of these tasks are on silent nodes."""
        self.silent: set[int] = set()
        """The nodes that are silent."""
        self.node_ids: dict[str, int] = {}
        """IDs of the nodes of the cluster, by name."""
        self.deleted_ids: dict[str, int] = {}
        """IDs of deleted nodes, by name. If such a node joins again, it gets the same ID."""
        self.idle_devices: dict[int, Mask] = {}
        """Node -> the healthy devices that no run holds and no earmark keeps. Here and below, on a site with cells, the CPUs of
        a node without devices take the place of devices."""
        self.held_devices: dict[int, Mask] = {}
        """Node -> the devices that share groups hold, or runs that are in no group."""
        self.groups_on: dict[int, set[int]] = {}
        """Node -> the share groups that hold devices of the node."""
        self.faulty_devices: dict[int, Mask] = {}
        """Node -> the devices that are faulty."""
        self.kept_devices: dict[int, Mask] = {}
        """Node -> the devices that earmarks keep, whether they are idle yet or not."""
        self.kept_for_opportunistic: dict[int, Mask] = {}
        """Node -> those of them that are kept for opportunistic jobs: a job with a right to them takes them."""
        self.guaranteed_devices: dict[int, Mask] = {}
        """Node -> the devices that guaranteed runs and groups hold."""
        self.opportunistic: dict[str, int] = {}
        """Virtual cluster -> how many devices its opportunistic runs hold."""
        self.opportunistic_cpus: dict[str, int] = {}
        """Virtual cluster -> how many thousandths of a CPU its opportunistic runs without devices hold."""
        self.opportunistic_runs: dict[str, set[RunKey]] = {}
        """Virtual cluster -> its opportunistic runs that hold devices."""
        self.without: dict[int, int] = {}
        """Job that is not limited to opportunistic cells -> how many of its runs are opportunistic."""
        self.within: dict[int, int] = {}
        """Elastic job -> how many of its runs are guaranteed. Its other runs are beyond its guarantee."""
        self.guaranteed_runs: dict[str, set[RunKey]] = {}
        """Virtual cluster -> its guaranteed runs that hold devices."""
        self.overflowing: dict[str, set[int]] = {}
        """Virtual cluster -> its overflow jobs that run as opportunistic, and are to become guaranteed when they can."""
        self.demoted: dict[str, set[int]] = {}
        """Virtual cluster -> its jobs that run as opportunistic because they lost the cells that they were in."""
        self.pools: Pools | None = None
        if settings.pools is not None:
            self.pools = Pools(settings.pools, settings.host_percent, settings.device_memory_limit_percent)
        self.exchange_index = ExchangeIndex()
        self.idle_of: dict[int, set[Kind]] = {}
        """Virtual cluster -> the kinds of its cells that have a row of `idle`."""
        self.requests: dict[tuple[str, str], int] = {}
        self.earmarks_of: dict[int, set[int]] = {}
        """Waiting trial -> its earmarks: one for each node on which something is kept for it."""
        self.promised_by: dict[RunKey, tuple[int, ...]] = {}
        """Victim -> the earmarks that wait for what it holds."""
        self.deadlines: list[tuple[Micros, Deadline, Any]] = []
        """(time, Deadline, key of the row as a tuple), earliest first."""
        self.dependents: dict[int, set[int]] = {}
        """Job -> the jobs that wait for its end."""
        self.elements_of: dict[int, set[int]] = {}
        """Array -> its live elements."""
        self.changed_runs: dict[RunKey | int, Run | None] = {}
        """Changes since the last adopt that nodes may have to be told about, in order: runs that are new or have a new
        generation, and jobs whose tasks are to meet. Keys never move, so that an undo removes the last ones."""

        self.operation_of: dict[int, int] = {}
        """Job -> its current operation, such as a park: no other operation changes the job meanwhile."""
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
        """Past runs, by user and script."""
        self.measured: Table[RunKey, Measured] = Table("measurement", _no_index, durable=False)
        """The latest measurement of each run that was measured, while a policy introspects."""
        self.switching: Table[RunKey, Switching] = Table("switching", _no_index, durable=False)
        """Durations of the parks and resumes of runs that take turns, while a policy introspects."""
        self.cluster_table.replace(0, cluster)

    def tables(self) -> tuple[Table[Any, Any], ...]:
        jobs = (self.cluster_table, self.jobs, self.runs, self.share_groups, self.earmarks, self.memos)
        cells = (self.nodes, self.devices, self.vcs, self.bindings, self.postings, self.exchanges)
        others = (self.ledger, self.surpluses, self.idle, self.history, self.operations, self.measured, self.switching)
        return (*jobs, *cells, *others)

    def queue(self, vc: str, lane: Lane, named: Named = ANY) -> Queue:
        """Return the queue of the jobs with the same `Named`. It is read-only."""
        return self.queues.get((vc, lane), _NO_QUEUES).get(named, NOBODY)

    def waiting(self, vc: str, lane: Lane) -> Iterator[QueueKey]:
        """Iterate over the whole lane of a virtual cluster, in order. A job that is in several queues comes once."""
        queues = self.queues.get((vc, lane), {}).values()
        return iter(*queues) if len(queues) == 1 else (key for key, _ in groupby(merge(*queues)))

    def kinds_waiting(self, lane: Lane) -> Kinds:
        """Return the queued jobs without a virtual cluster by what they request: a queue for each kind."""

        def key_in_lane(job: Job) -> QueueKey | None:
            """Check the lane, since the ID may have been that of a job of another lane whose submit was undone."""
            return self.queue_key(job) if LANE[job.spec.job_class] is lane and not job.spec.vc else None

        return self.site_kinds[lane].kinds(self.site_queues[lane], self.jobs.rows, key_in_lane)

    def order_for(self, job: Job) -> QueueOrder:
        """Return the order of the job's queue."""
        return self.vc_orders.get(job.spec.vc, self.site_order)

    def place_of(self, job: Job) -> QueueKey:
        """Return the job's key in its queue, or the key that it would have if it were queued."""
        order = self.vc_orders.get(job.spec.vc, self.site_order)
        if not order.policy:
            return order.key(job, None, self.settings)
        return order.key(job, self.memos.rows.get((order.policy, order.subject(job))), self.settings)

    def queue_key(self, job: Job) -> QueueKey | None:
        """Return the job's key in its queue; None: it is in no queue."""
        return self.place_of(job) if stands(job) else None

    def device_tree(self, node: int) -> DeviceTree:
        """Return how close the devices of the node are to each other."""
        return self.kept_idle_groups.tree(node, self.nodes.rows, self.devices.rows)

    def runs_of(self, job_id: int) -> list[Run]:
        """Return the tasks of the job's launch that have not ended, in rank order."""
        keys = self.active.get(job_id, ())
        return [self.runs.rows[key] for key in (sorted(keys) if len(keys) > 1 else keys)]

    def mates_of(self, run: Run) -> list[Run]:
        """Return the tasks of the run's launch that have not ended, including the run itself. The launch may be one that waits
        for the end of the one before it."""
        if not run.awaits:
            return self.runs_of(run.job_id)
        tasks = range(len(self.jobs.rows[run.job_id].launch_spec.tasks()))
        keys = (RunKey(run.job_id, run.run, task) for task in tasks)
        return [self.runs.rows[key] for key in keys if key in self.runs.rows]

    def among(self, spec: JobSpec) -> Suitable | None:
        """Return the nodes on which the job may run by its requirements other than resources; None: all nodes. On a site with
        virtual clusters, cells decide that."""
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
        """Return, by node, the total demand of its runs, and its affinity. Looks at every run if no policy introspects."""
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
        """Whether the job is scheduled: it has a virtual cluster if and only if the site has them. Jobs from before that
        setting was changed keep running, or wait forever."""
        return bool(job.spec.vc) is (self.pools is not None)

    def holds_faulty(self, run: Run) -> bool:
        """Whether a device of the run is faulty. If so, the run releases less than it holds."""
        faulty = self.faulty_devices.get(run.node, 0)
        return bool(faulty) and bool(faulty & mask_of(run.devices))

    def holders(self, node: int, index: int) -> list[Run]:
        """Return the runs that hold the device, in order. Looks at all runs on the node."""
        on = (self.runs.rows[key] for key in sorted(self.runs_on.get(node, ())))
        return [run for run in on if index in run.devices]

    def cpus_of(self, node: int) -> Mask:
        """Return the node's CPUs that take the place of devices; none if it has devices, or on a site without cells."""
        if self.pools is None:
            return 0
        row = present(self.nodes.rows.get(node))
        if row is None or row.capacity.devices:
            return 0
        return (1 << cpus_of(row.capacity)) - 1


def _no_index(_old: object, _new: object) -> None:
    """The index function of tables without indices."""
