"""The tables of the state, and what can be asked of them and of their indices, as the index functions see them."""

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from types import MethodType
from typing import Any

from scheduler_service.core.cells.closeness import DeviceTree
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
from scheduler_service.core.model.values import Mask, mask_of
from scheduler_service.core.state.index_data import IndexData
from scheduler_service.core.state.journal import Journal, Table
from scheduler_service.core.state.pending import Pending
from scheduler_service.core.state.queue import NOBODY, Queue
from scheduler_service.core.state.queue_keys import ANY, LANE, Lane, Named, is_in_queue
from scheduler_service.core.state.queue_order import OrderOf, QueueKey, QueueOrder
from scheduler_service.core.state.resources.server_loads import Loads
from scheduler_service.core.state.resources.suitable_nodes import Suitable, asks_nothing
from scheduler_service.core.state.waiting_kinds import Kinds

CellKey = tuple[str, str, int]
"""(pool, level, index)"""

_NO_QUEUES: dict[Named, Queue] = {}

Reindex = Callable[["Tables", Any, Any], None]
"""Updates the indices for the previous row and the current row; None: there was, or is, no row."""


class Tables(IndexData):
    """Tables: cluster, jobs, runs, share groups, operations, nodes, devices, earmarks, vcs, bindings, and those of the cell
    exchange. They have live rows only; the ledger has no rows in memory."""

    def __init__(self, cluster: Cluster, settings: Settings, order_of: OrderOf, reindex: Mapping[str, Reindex]) -> None:
        """`order_of` returns the order of queues for the policy of a virtual cluster; `reindex` has, for each table, the
        function that updates its indices."""
        super().__init__(settings)
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
        self.pending = Pending()
        self.pending.look_at_all()
        self.adopted_pending = Pending()
        """`pending` at the last adopt. Undoing a step restores it, with all flags set: rows that are put back are no news."""
        self.delegated: dict[tuple[str, str], Any] = {}
        """Policy and subject -> what the policies have delegated since the last adopt."""
        self.changed_runs: dict[RunKey | int, Run | None] = {}
        """Changes since the last adopt that nodes may have to be told about, in order: runs that are new or have a new
        generation, and jobs whose tasks are to meet. Keys never move, so that an undo removes the last ones."""

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
        return self.place_of(job) if is_in_queue(job) else None

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

    def suitable_for(self, spec: JobSpec) -> Suitable | None:
        """Return the nodes on which the job may run by its requirements other than resources; None: all nodes. On a site with
        virtual clusters, cells decide that."""
        if self.pools is not None or asks_nothing(spec):
            return None
        return self.suitable_nodes.find(spec, self.free_resources.count)

    def is_usable(self, spec: JobSpec, node: int) -> bool:
        """Whether the job may be placed on the node, if it fits there."""
        if not self.free_resources.is_open(node):
            return False
        among = self.suitable_for(spec)
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
            if (among := self.suitable_for(one.spec)) is not None or one.spec.gang
            else self.free_resources.could_ever_fit(one.spec.demand)
            for one in job.in_each_configuration()
        )

    def could_take_now(self, job: Job) -> bool:
        """Whether the job would fit in one of its configurations if every open node were empty."""
        if not (job.spec.gang or job.spec.alternatives) and asks_nothing(job.spec):  # nearly always
            return self.open_nodes.seats(job.spec.demand).bits != 0
        return any(
            self.open_nodes.could_fit_all(one.spec.tasks(), among)
            if (among := self.suitable_for(one.spec)) is not None or one.spec.gang
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
