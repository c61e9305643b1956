"""The data of the indices over the tables.

Each index is a function of the rows. `indices` keeps the indices up to date, one function for each table.
"""

from typing import Any

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.model import Reason, RunKey
from scheduler_service.core.model.settings import Settings
from scheduler_service.core.model.tenants.exchange import Kind
from scheduler_service.core.model.values import Mask, Micros, Vector
from scheduler_service.core.state.exchange_index import ExchangeIndex
from scheduler_service.core.state.open_groups import OpenGroups
from scheduler_service.core.state.queue import Queue
from scheduler_service.core.state.queue_keys import ANY, OWN_LANES, Deadline, Lane, Named
from scheduler_service.core.state.queue_order import QueueOrder
from scheduler_service.core.state.resources.candidates import Candidates
from scheduler_service.core.state.resources.free_resources import FreeResources
from scheduler_service.core.state.resources.idle_beside import IdleBeside
from scheduler_service.core.state.resources.idle_groups import IdleGroups
from scheduler_service.core.state.resources.open_nodes import OpenNodes
from scheduler_service.core.state.resources.server_loads import ServerLoads
from scheduler_service.core.state.resources.suitable_nodes import SuitableNodes
from scheduler_service.core.state.waiting_kinds import WaitingKinds


class IndexData:
    """The indices, empty until rows are put into the tables."""

    def __init__(self, settings: Settings) -> None:
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
        self.operation_of: dict[int, int] = {}
        """Job -> its current operation, such as a park: no other operation changes the job meanwhile."""
        self.vacating_of: dict[int, int] = {}
        """Job -> its vacate or resize."""
        self.waiting_operations: set[int] = set()
        """Operations that wait for devices."""
