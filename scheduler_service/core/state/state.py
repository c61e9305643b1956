"""The state of the cluster: tables of rows, and the indices that make a step cost what it changes.

`State.put` is the only way to change anything. Each index is a function of the rows, kept up by the table's `reindex` hook
(see `indices`) at every put, and so also at every undo; `rebuilt` makes them anew from the rows, which is how tests know
them right.
"""

from collections.abc import Iterator
from heapq import merge
from types import MethodType
from typing import Any

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import cpus_of
from scheduler_service.core.model import (
    ENDED,
    Cluster,
    Job,
    JobClass,
    JobEvent,
    Node,
    NodeDevice,
    Operation,
    Run,
    RunKey,
    RunPhase,
    present,
)
from scheduler_service.core.model.exchange import Booking, Exchange, ExchangeOrder, ExchangeState, LedgerEntry, OrderState
from scheduler_service.core.model.idle_history import IdleCells
from scheduler_service.core.model.settings import DEFAULTS, Settings
from scheduler_service.core.model.values import Mask, Micros, mask_of
from scheduler_service.core.model.virtual_clusters import Binding, VirtualCluster
from scheduler_service.core.state.candidates import Candidates
from scheduler_service.core.state.exchange_index import ExchangeIndex, Kind, Surplus
from scheduler_service.core.state.free_resources import FreeResources
from scheduler_service.core.state.indices.jobs import of_job, of_operation
from scheduler_service.core.state.indices.nodes import of_cluster, of_device, of_node
from scheduler_service.core.state.indices.runs import of_run, update_candidate
from scheduler_service.core.state.indices.virtual_clusters import of_binding, of_exchange, of_idle, of_order, of_vc
from scheduler_service.core.state.journal import Journal, Table
from scheduler_service.core.state.queue import Queue
from scheduler_service.core.state.queue_keys import Deadline, Lane, Named, QueueKey

CellKey = tuple[str, str, int]
"""Pool, level, index."""

_LOADED = (
    *("cluster", "node", "device", "virtual_cluster", "cell_binding", "job", "run", "operation"),
    *("exchange_order", "exchange", "exchange_surplus", "idle_cells"),
)
"""The order in which tables are loaded."""


class State:
    """See the module. Tables: cluster, jobs, runs, nodes, devices, operations, vcs, bindings, and those of cell exchange (live
    rows only; of the ledger, none)."""

    def __init__(self, cluster: Cluster, settings: Settings = DEFAULTS) -> None:
        self.settings = settings
        self.journal = Journal()
        self.put = self.journal.put
        self.log: list[JobEvent] = []
        self.unsettled = True
        """Something happened since the policies last ran that may let a job start."""
        self.longer = False
        """Since then jobs came to stand in queues, each behind another: for those before them this changes nothing."""
        self.board_changed = True
        """Something happened since the policies last ran that may let cells be exchanged."""
        self.bound_otherwise: set[int] = set()
        """Virtual clusters that have other cells bound than when the policies last ran, if any has a proxy."""

        self.free_resources = FreeResources()
        self.host: FreeResources | None = None if settings.pools is None or settings.by_count else FreeResources()
        """Where there are cells: of nodes with devices, what goes with none of these."""
        self.kept_candidates = Candidates()
        self.stale_candidates: dict[RunKey, None] = {}
        """Active runs that `kept_candidates` may not have as they are: `candidates` sees to that."""
        self.queues: dict[JobClass, Queue] = {job_class: Queue() for job_class in JobClass}
        """Queued jobs by class, as `waiting.queue_key` has them. Those of virtual clusters are in `lanes`."""
        self.lanes: dict[tuple[str, Lane], dict[Named, list[QueueKey]]] = {}
        """Virtual cluster and what they wait for -> its queued jobs, by what they name of that: a queue for each."""
        self.too_large: set[int] = set()
        """Jobs that no node can take. They stand in no queue."""
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
        """Node -> the devices that runs hold."""
        self.faulty_devices: dict[int, Mask] = {}
        """Node -> the devices that are faulty."""
        self.kept_devices: dict[int, Mask] = {}
        """Node -> the devices that earmarks keep, idle or not yet."""
        self.kept_for_opportunistic: dict[int, Mask] = {}
        """Node -> of these, those that are kept for opportunistic jobs: whoever has a right to them takes them."""
        self.guaranteed_devices: dict[int, Mask] = {}
        """Node -> the devices that guaranteed runs hold."""
        self.opportunistic: dict[str, int] = {}
        """Virtual cluster -> how many devices its opportunistic runs hold."""
        self.opportunistic_cpus: dict[str, int] = {}
        """Virtual cluster -> how many thousandths of a CPU those of them hold that have no devices."""
        self.guaranteed: dict[str, int] = {}
        """Virtual cluster -> how many devices its guaranteed runs hold, and earmarks keep for such."""
        self.opportunistic_runs: dict[str, set[RunKey]] = {}
        """Virtual cluster -> its opportunistic runs that hold devices."""
        self.without: dict[int, int] = {}
        """Job that need not run as opportunistic -> how many of its runs do."""
        self.guaranteed_runs: dict[str, set[RunKey]] = {}
        """Virtual cluster -> its guaranteed runs that hold devices."""
        self.overflowing: dict[str, set[int]] = {}
        """Virtual cluster -> its jobs that run as opportunistic, as they may, and would rather be guaranteed."""
        self.demoted: dict[str, set[int]] = {}
        """Virtual cluster -> its jobs that run as opportunistic because the cells that they were in are others' now."""
        self.pools: Pools | None = None if settings.pools is None else Pools(settings.pools, settings.host_percent)
        self.exchange_index = ExchangeIndex()
        self.idle_of: dict[int, set[Kind]] = {}
        """Virtual cluster -> the kinds of its cells of which it is noted how long they have been idle."""
        self.requests: dict[tuple[str, str], int] = {}
        self.earmarks_of: dict[int, set[int]] = {}
        """Waiting trial -> its earmark operations: one for each node on which something is kept for it."""
        self.promised_by: dict[RunKey, tuple[int, ...]] = {}
        """Victim -> the operations that wait for what it holds."""
        self.deadlines: list[tuple[Micros, Deadline, Any]] = []
        """(time, Deadline, key of the row as a tuple), soonest first."""
        self.dependents: dict[int, set[int]] = {}
        """Job -> those that wait for its end."""
        self.elements_of: dict[int, set[int]] = {}
        """Array -> its live elements."""
        self.news: dict[RunKey | int, bool] = {}
        """What nodes may have to be told of since the last adopt, in order: runs, with whether they are new, and jobs whose
        tasks are to meet. No key changes once it is there, so that an undo takes away the last ones."""

        over = RunPhase.ENDED
        self.cluster = cluster
        self.cluster_table: Table[int, Cluster] = Table("cluster", MethodType(of_cluster, self))
        self.jobs: Table[int, Job] = Table("job", MethodType(of_job, self), lambda job: job.state in ENDED)
        self.runs: Table[RunKey, Run] = Table("run", MethodType(of_run, self), lambda run: run.phase is over)
        self.nodes: Table[int, Node] = Table("node", MethodType(of_node, self))
        self.devices: Table[tuple[int, int], NodeDevice] = Table("device", MethodType(of_device, self))
        self.operations: Table[int, Operation] = Table("operation", MethodType(of_operation, self))
        self.vcs: Table[int, VirtualCluster] = Table("virtual_cluster", MethodType(of_vc, self))
        self.bindings: Table[CellKey, Binding] = Table("cell_binding", MethodType(of_binding, self))
        open_order, returned = OrderState.OPEN, ExchangeState.RETURNED
        self.orders: Table[int, ExchangeOrder] = Table(
            "exchange_order", MethodType(of_order, self), lambda o: o.state is not open_order
        )
        self.exchanges: Table[int, Exchange] = Table(
            "exchange", MethodType(of_exchange, self), lambda exchange: exchange.state is returned
        )
        self.ledger: Table[tuple[int, int, Booking], LedgerEntry] = Table("exchange_ledger", _no_index, lambda _: True)
        self.surpluses: Table[int, Surplus] = Table("exchange_surplus", _no_index)
        self.idle: Table[Kind, IdleCells] = Table("idle_cells", MethodType(of_idle, self))
        self.cluster_table.replace(0, cluster)

    def tables(self) -> tuple[Table[Any, Any], ...]:
        tables = (self.cluster_table, self.jobs, self.runs, self.nodes, self.devices, self.operations)
        return (*tables, self.vcs, self.bindings, self.orders, self.exchanges, self.ledger, self.surpluses, self.idle)

    @property
    def candidates(self) -> Candidates:
        """The runs that trials may preempt. Brought up to date on access: most runs come and go without anybody looking."""
        for key in self.stale_candidates:
            update_candidate(self, key)
        self.stale_candidates.clear()
        return self.kept_candidates

    def waiting(self, vc: str, lane: Lane) -> Iterator[QueueKey]:
        """The lane of a virtual cluster, in order, whatever its jobs name."""
        return merge(*self.lanes.get((vc, lane), {}).values())

    def runs_of(self, job_id: int) -> list[Run]:
        """The tasks of the job's launch that have not ended, in the order of their ranks."""
        keys = self.active.get(job_id, ())
        return [self.runs.rows[key] for key in (sorted(keys) if len(keys) > 1 else keys)]

    def serves(self, job: Job) -> bool:
        """Whether it is one of those that are scheduled: a virtual cluster's where the site has such, else one without. Others
        are from before that was set otherwise: they run on, and wait for ever."""
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
        if self.pools is None or self.settings.by_count:
            return 0
        row = present(self.nodes.rows.get(node))
        if row is None or row.capacity.devices:
            return 0
        return (1 << cpus_of(row.capacity)) - 1

    # ---- change and undo -----------------------------------------------------------------------------------------------

    def savepoint(self) -> tuple[int, int, int]:
        return len(self.journal.entries), len(self.log), len(self.news)

    def undo(self, to: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Returns to the savepoint; (0, 0, 0) is where the last `adopt` left the state."""
        self.journal.undo(to[0])
        del self.log[to[1] :]
        while len(self.news) > to[2]:  # also what came in as rows were put back: a run that had ended is no new one
            self.news.popitem()
        self.unsettled = self.board_changed = True
        self.longer = False

    def adopt(self) -> None:
        """Makes what was changed since the last adopt final: it cannot be undone any more."""
        self.journal.clear()
        self.log.clear()
        self.news.clear()

    def restore(self, rows: Iterator[tuple[str, Any, Any]]) -> None:
        """Fills an empty state with loaded rows: (table name, key, row), in any order."""
        by_name = {table.name: table for table in self.tables()}
        order = {name: i for i, name in enumerate(_LOADED)}
        for name, key, row in sorted(rows, key=lambda r: (order[r[0]], r[1])):
            by_name[name].replace(key, row)
        self.news.clear()

    # ---- for tests: everything that the indices hold, in a form that can be compared -------------------------------------

    def rebuilt(self) -> "State":
        """A new state made from this one's rows; equal to it in `snapshot` if the indices are right."""
        other = State(self.cluster, self.settings)
        other.restore((t.name, key, row) for t in self.tables() if t is not self.cluster_table for key, row in t.rows.items())
        return other

    def snapshot(self) -> dict[str, object]:
        """Rows and indices as plain comparable values."""
        return {
            "rows": {table.name: dict(table.rows) for table in self.tables()},
            "queues": {name: (queue.first, list(queue)) for name, queue in self.queues.items()},
            "runs_on": {node: set(keys) for node, keys in self.runs_on.items()},
            "active": {job: set(keys) for job, keys in self.active.items()},
            "tasks": (dict(self.ready), dict(self.begun), dict(self.unreachable)),
            "silent": set(self.silent),
            "node_ids": dict(self.node_ids),
            "deleted_ids": dict(self.deleted_ids),
            "idle": dict(self.idle_devices),
            "held": dict(self.held_devices),
            "faulty": dict(self.faulty_devices),
            "kept": dict(self.kept_devices),
            "kept_for_opportunistic": dict(self.kept_for_opportunistic),
            "guaranteed": (dict(self.guaranteed), dict(self.guaranteed_devices)),
            "opportunistic": (dict(self.opportunistic), dict(self.opportunistic_cpus)),
            "opportunistic_runs": {vc: set(keys) for vc, keys in self.opportunistic_runs.items()},
            "without": dict(self.without),
            "guaranteed_runs": {vc: set(keys) for vc, keys in self.guaranteed_runs.items()},
            "overflowing": {vc: set(jobs) for vc, jobs in self.overflowing.items()},
            "demoted": {vc: set(jobs) for vc, jobs in self.demoted.items()},
            "lanes": {at: {named: list(queue) for named, queue in queues.items()} for at, queues in self.lanes.items()},
            "too_large": set(self.too_large),
            "vc_ids": dict(self.vc_ids),
            "pools": None if self.pools is None else self.pools.snapshot(),
            "traded": self.exchange_index.snapshot(),
            "idle_of": {vc: set(kinds) for vc, kinds in self.idle_of.items()},
            "requests": dict(self.requests),
            "earmarks_of": {job: set(ids) for job, ids in self.earmarks_of.items()},
            "dependents": {job: set(ids) for job, ids in self.dependents.items()},
            "elements_of": {job: set(ids) for job, ids in self.elements_of.items()},
            "promised_by": dict(self.promised_by),
            "deadlines": list(self.deadlines),
            "room": self.free_resources.snapshot(),
            "host": self.host.snapshot() if self.host is not None else None,
            "candidates": self.candidates.snapshot(),
        }


def _no_index(_old: object, _new: object) -> None:
    """Of a table of which nothing follows."""
