"""The tables of the state and the indices over them, as the index functions see them; `State` puts the two together.

Each index is a function of the rows. `indices` keeps the indices up to date, one function for each table.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from types import MethodType
from typing import Any

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.positions import cpus_of
from scheduler_service.core.model import (
    ENDED,
    Cluster,
    Earmark,
    Job,
    JobClass,
    JobEvent,
    Node,
    NodeDevice,
    Run,
    RunKey,
    present,
)
from scheduler_service.core.model.exchange import (
    Booking,
    Exchange,
    ExchangeState,
    Kind,
    LedgerEntry,
    Posting,
    PostingState,
    Surplus,
)
from scheduler_service.core.model.idle_history import IdleCells
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.values import Mask, Micros, mask_of
from scheduler_service.core.model.virtual_clusters import Binding, VirtualCluster
from scheduler_service.core.state.candidates import Candidates
from scheduler_service.core.state.exchange_index import ExchangeIndex
from scheduler_service.core.state.free_resources import FreeResources
from scheduler_service.core.state.journal import Journal, Table
from scheduler_service.core.state.queue import Queue
from scheduler_service.core.state.queue_keys import Deadline, Lane, Named, QueueKey

CellKey = tuple[str, str, int]
"""Pool, level, index."""

Reindex = Callable[["Tables", Any, Any], None]
"""Is told of a row that was there and of the row that is there now; None where there is none."""


class Tables:
    """Tables: cluster, jobs, runs, nodes, devices, earmarks, vcs, bindings, and those of cell exchange (live rows only; of
    the ledger, none)."""

    def __init__(self, cluster: Cluster, settings: Settings, reindex: Mapping[str, Reindex]) -> None:
        """`reindex`: by table, what brings its indices up to date."""
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
        """Queued jobs by class, ordered by `queue_keys.queue_key`. Those of virtual clusters are in `lanes`."""
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
        """Waiting trial -> its earmark earmarks: one for each node on which something is kept for it."""
        self.promised_by: dict[RunKey, tuple[int, ...]] = {}
        """Victim -> the earmarks that wait for what it holds."""
        self.deadlines: list[tuple[Micros, Deadline, Any]] = []
        """(time, Deadline, key of the row as a tuple), soonest first."""
        self.dependents: dict[int, set[int]] = {}
        """Job -> those that wait for its end."""
        self.elements_of: dict[int, set[int]] = {}
        """Array -> its live elements."""
        self.news: dict[RunKey | int, None] = {}
        """What nodes may have to be told of since the last adopt, in order: runs that are new, or of another generation, and
        jobs whose tasks are to meet. No key moves once it is there, so that an undo takes away the last ones."""

        self.cluster = cluster
        self.cluster_table: Table[int, Cluster] = Table("cluster", MethodType(reindex["cluster"], self))
        self.jobs: Table[int, Job] = Table("job", MethodType(reindex["job"], self), lambda job: job.state in ENDED)
        self.runs: Table[RunKey, Run] = Table("run", MethodType(reindex["run"], self), lambda run: run.phase.over)
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
        self.cluster_table.replace(0, cluster)

    def tables(self) -> tuple[Table[Any, Any], ...]:
        tables = (self.cluster_table, self.jobs, self.runs, self.nodes, self.devices, self.earmarks)
        return (*tables, self.vcs, self.bindings, self.postings, self.exchanges, self.ledger, self.surpluses, self.idle)

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


def _no_index(_old: object, _new: object) -> None:
    """Of a table of which nothing follows."""
