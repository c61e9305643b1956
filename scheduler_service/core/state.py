"""The state of the cluster: tables of rows, and the indices that make a step cost what it changes.

`State.put` is the only way to change anything. Each index is a function of the rows, kept up by the table's `reindex`
hook at every put, and so also at every undo; `rebuilt` makes them anew from the rows, which is how tests know them right.
"""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, TypeVar

from sortedcontainers import SortedList

from scheduler_service.core.candidates import Candidates
from scheduler_service.core.exchange import Booking, Exchange, ExchangeOrder, ExchangeState, LedgerEntry, OrderState
from scheduler_service.core.idle import IdleCells
from scheduler_service.core.job import (
    ENDED,
    Cluster,
    Job,
    JobClass,
    JobEvent,
    JobState,
    Node,
    NodeDevice,
    Operation,
    Run,
    RunKey,
    RunPhase,
)
from scheduler_service.core.journal import Change, Journal, Table
from scheduler_service.core.pools import PoolPlan, Pools, cpus_of
from scheduler_service.core.room import Room
from scheduler_service.core.rows import changed
from scheduler_service.core.traded import Kind, Surplus, Traded, exchange_deadlines, order_deadlines
from scheduler_service.core.values import SECOND, Mask, Micros, Vector, mask_of, sub, times
from scheduler_service.core.vc import Binding, Guarantee, VirtualCluster
from scheduler_service.core.waiting import DUE, NOT_DUE, Deadline, Lane, QueueKey, due, lanes_of, queue_key

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Settings(NamedTuple):
    """What the engine itself must know of the site's choices (policies have their own)."""

    default_grace_us: Micros = 30 * SECOND
    earmark_ttl_us: Micros = 60 * SECOND
    """How long an earmark outlives the moment at which its last promised part became free."""
    aging_us: Micros = 0
    """How much waiting is worth a step of priority; 0: waiting is worth nothing."""
    min_run_us: Micros = 0
    """How long a run may not be preempted for a trial after its start."""
    gang_start_us: Micros = 60 * SECOND
    """In which all tasks of a gang must have started, from its placement."""
    retry_pause_us: Micros = SECOND
    """Before the first retry; each further one waits twice as long, 5 minutes at most."""
    blame_nodes: int = 3
    """A job that failed on so many nodes is not tried again; 0: never mind."""
    bad_node_strikes: int = 3
    """A node with so many strikes is drained; 0: never."""
    reclaim_grace_us: Micros = 30 * SECOND
    """The longest grace period of an opportunistic run whose devices somebody has a right to."""
    host_percent: int = 0
    """How much of the CPUs and memory of nodes with devices goes with none of these, but to jobs without devices."""
    by_count: bool = False
    """A virtual cluster's quota is a number of devices, wherever they are, and no cells: what HiveD is compared with."""
    pools: tuple[PoolPlan, ...] | None = None
    """A site of virtual clusters: the pools that it names, beside those that follow from its nodes. None: it has none."""


CellKey = tuple[str, str, int]
"""Pool, level, index."""

DEFAULTS = Settings()
_LOADED = (
    *("cluster", "node", "device", "virtual_cluster", "cell_binding", "job", "run", "operation"),
    *("exchange_order", "exchange", "exchange_surplus", "idle_cells"),
)
"""The order in which tables are loaded."""
_Due = tuple[tuple[Deadline, Micros | None], ...]
QUEUED, STOPPING = JobState.QUEUED, RunPhase.STOPPING


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
        self.board_changed = True
        """Something happened since the policies last ran that may let cells be exchanged."""

        self.room = Room()
        self.host: Room | None = None if settings.pools is None or settings.by_count else Room()
        """Where there are cells: of nodes with devices, what goes with none of these."""
        self._candidates = Candidates()
        self._stale: dict[RunKey, None] = {}
        """Active runs that `_candidates` may not have as they are."""
        self.queues: dict[JobClass, SortedList] = {job_class: SortedList() for job_class in JobClass}
        """Queued jobs by class, as `waiting.queue_key` has them; the last part of each is the job's id. Those of virtual
        clusters are in `lanes`."""
        self.lanes: dict[tuple[str, Lane], SortedList] = {}
        """Virtual cluster and what they wait for -> its queued jobs."""
        self.vc_ids: dict[str, int] = {}
        self.runs_on: dict[int, set[RunKey]] = {}
        self.active: dict[int, set[RunKey]] = {}
        """Job -> the tasks of its launch that have not ended."""
        self.node_ids: dict[str, int] = {}
        self.idle_devices: dict[int, Mask] = {}
        """Node -> the healthy devices that no run holds and that are kept for none. Here and in what follows, where there are
        cells, the CPUs of a node that has no devices are in their place."""
        self.held_devices: dict[int, Mask] = {}
        """Node -> the devices that runs hold."""
        self.faulty_devices: dict[int, Mask] = {}
        """Node -> the devices that are faulty."""
        self.kept_devices: dict[int, Mask] = {}
        """Node -> the devices that earmarks keep, idle or not yet."""
        self.guests_devices: dict[int, Mask] = {}
        """Node -> of these, those that are kept for opportunistic jobs: whoever has a right to them takes them."""
        self.guaranteed_devices: dict[int, Mask] = {}
        """Node -> the devices that guaranteed runs hold."""
        self.opportunistic: dict[str, int] = {}
        """Virtual cluster -> how many devices its opportunistic runs hold."""
        self.opportunistic_cpus: dict[str, int] = {}
        """Virtual cluster -> how many thousandths of a CPU those of them hold that have no devices."""
        self.regular: dict[str, int] = {}
        """Virtual cluster -> how many devices its guaranteed runs hold, and earmarks keep for such."""
        self.guests: dict[str, set[RunKey]] = {}
        """Virtual cluster -> its opportunistic runs that hold devices."""
        self.overflowing: dict[str, set[int]] = {}
        """Virtual cluster -> its jobs that run as opportunistic and would rather be guaranteed."""
        self.pools: Pools | None = None if settings.pools is None else Pools(settings.pools, settings.host_percent)
        self.traded = Traded()
        self.requests: dict[tuple[str, str], int] = {}
        self.earmarks_of: dict[int, set[int]] = {}
        """Waiting trial -> its earmark operations: one for each node on which something is kept for it."""
        self.promised_by: dict[RunKey, tuple[int, ...]] = {}
        """Victim -> the operations that wait for what it holds."""
        self.deadlines: SortedList = SortedList()
        """(time, Deadline, key of the row as a tuple), soonest first."""
        self.dependents: dict[int, set[int]] = {}
        """Job -> those that wait for its end."""
        self.elements_of: dict[int, set[int]] = {}
        """Array -> its live elements."""
        self.news: dict[RunKey | int, bool] = {}
        """What nodes may have to be told of since the last adopt, in order: runs, with whether they are new, and jobs whose
        tasks are to meet. No key changes once it is there, so that an undo takes away the last ones."""

        self.cluster_table: Table[int, Cluster] = Table("cluster", _no_index)
        self.jobs: Table[int, Job] = Table("job", self._job, lambda job: job.state in ENDED)
        self.runs: Table[RunKey, Run] = Table("run", self._run, lambda run: run.phase is RunPhase.ENDED)
        self.nodes: Table[int, Node] = Table("node", self._node)
        self.devices: Table[tuple[int, int], NodeDevice] = Table("device", self._device)
        self.operations: Table[int, Operation] = Table("operation", self._operation)
        self.vcs: Table[int, VirtualCluster] = Table("virtual_cluster", self._vc)
        self.bindings: Table[CellKey, Binding] = Table("cell_binding", self._binding)
        open_order, over = OrderState.OPEN, ExchangeState.RETURNED
        self.orders: Table[int, ExchangeOrder] = Table("exchange_order", self._order, lambda o: o.state is not open_order)
        self.exchanges: Table[int, Exchange] = Table("exchange", self._exchange, lambda exchange: exchange.state is over)
        self.ledger: Table[tuple[int, int, Booking], LedgerEntry] = Table("exchange_ledger", _no_index, lambda _: True)
        self.surpluses: Table[int, Surplus] = Table("exchange_surplus", _no_index)
        self.idle: Table[Kind, IdleCells] = Table("idle_cells", self._idle)
        self.cluster_table.replace(0, cluster)

    @property
    def cluster(self) -> Cluster:
        return self.cluster_table.rows[0]

    def tables(self) -> tuple[Table[Any, Any], ...]:
        tables = (self.cluster_table, self.jobs, self.runs, self.nodes, self.devices, self.operations)
        return (*tables, self.vcs, self.bindings, self.orders, self.exchanges, self.ledger, self.surpluses, self.idle)

    @property
    def candidates(self) -> Candidates:
        """The runs that trials may preempt. They are brought up to date when somebody asks, for most runs come and go without
        that anybody does."""
        for key in self._stale:
            self._update_candidate(key)
        self._stale.clear()
        return self._candidates

    def runs_of(self, job_id: int) -> list[Run]:
        """The tasks of the job's launch that have not ended, in the order of their ranks."""
        keys = self.active.get(job_id, ())
        return [self.runs.rows[key] for key in (sorted(keys) if len(keys) > 1 else keys)]

    def holds_faulty(self, run: Run) -> bool:
        """Whether a device of the run is faulty: what it leaves is then less than it holds."""
        faulty = self.faulty_devices.get(run.node, 0)
        return bool(faulty) and bool(faulty & mask_of(run.devices))

    def holders(self, node: int, index: int) -> list[Run]:
        """The runs that hold the device; in order. Looks at all runs on the node."""
        on = (self.runs.rows[key] for key in sorted(self.runs_on.get(node, ())))
        return [run for run in on if index in run.devices]

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

    def adopt(self) -> None:
        """Makes what was changed since the last adopt final: it cannot be undone any more."""
        self.journal.clear()
        self.log.clear()
        self.news.clear()

    def changes(self) -> tuple[Change, ...]:
        return self.journal.changes()

    def restore(self, rows: Iterator[tuple[str, Any, Any]]) -> None:
        """Fills an empty state with loaded rows: (table name, key, row), in any order."""
        by_name = {table.name: table for table in self.tables()}
        order = {name: i for i, name in enumerate(_LOADED)}
        for name, key, row in sorted(rows, key=lambda r: (order[r[0]], r[1])):
            by_name[name].replace(key, row)
        self.news.clear()

    # ---- indices -------------------------------------------------------------------------------------------------------

    def _job(self, old: Job | None, new: Job | None) -> None:
        aging = self.settings.aging_us
        was = queue_key(old, aging) if old is not None and old.state is QUEUED else None
        now = queue_key(new, aging) if new is not None and new.state is QUEUED else None
        if was != now:
            for row, at, there in ((old, was, False), (new, now, True)):
                if row is not None and at is not None:
                    self._queue(row, at, there)
            self.unsettled = True
        if new is not None and new.rendezvous and (old is None or old.rendezvous != new.rendezvous):
            self.news.setdefault(new.id, True)
        if old is None or new is None:
            row = new or old
            if row is None:
                return
            if row.request_id:
                _set_or_drop(self.requests, (row.user, row.request_id), row.id if new else None)
            if row.array_job:
                _add_or_discard(self.elements_of, row.array_job, row.id, new is not None)
            for key in self.active.get(row.id, ()):
                self._refresh_candidate(key)
        elif (
            old.priority != new.priority
            or old.time_limit_us != new.time_limit_us
            or old.preempted_for_trial != new.preempted_for_trial
        ):
            self.unsettled = True  # whom a trial may have preempted, and when there will be room, may be other than before
            for key in self.active.get(new.id, ()):
                self._refresh_candidate(key)
        before, after = due(old) if old is not None else NOT_DUE, due(new) if new is not None else NOT_DUE
        if before != after:
            for kind, was_due, now_due in zip(DUE, before, after, strict=True):
                if was_due != now_due:
                    self._deadline(kind, ((old or new).id,), was_due, now_due)  # type: ignore[union-attr]  # one is there
        if (old is not None and old.waits_for) or (new is not None and new.waits_for):
            for row, there in ((old, False), (new, True)):
                for dependency in row.waits_for if row is not None else ():
                    _add_or_discard(self.dependents, dependency.job_id, row.id, there)  # type: ignore[union-attr]

    def _queue(self, job: Job, key: QueueKey, stands: bool) -> None:
        if not job.spec.vc:
            queue = self.queues[job.spec.job_class]
            queue.add(key) if stands else queue.remove(key)
            return
        for lane in lanes_of(job):
            at = (job.spec.vc, lane)
            if (queue := self.lanes.get(at)) is None:
                queue = self.lanes[at] = SortedList()
            queue.add(key) if stands else queue.remove(key)
            if not queue:
                del self.lanes[at]

    def _run(self, old: Run | None, new: Run | None) -> None:
        row = new or old
        if row is None:
            return
        key = row.key
        if old is None or new is None:
            _add_or_discard(self.runs_on, row.node, key, new is not None)
            _add_or_discard(self.active, row.job_id, key, new is not None)
            self._hold(row, new is not None)
            self._stand(old, new)
            self.unsettled = True
        elif old.guaranteed != new.guaranteed:
            self._stand(old, new)
            self.unsettled = True
        if new is not None and (old is None or (old.stop_us is None and new.stop_us is not None)):
            self.news.setdefault(key, old is None)
        guarded_before = old.guarded_us if old is not None else None
        guarded_after = new.guarded_us if new is not None else None
        if guarded_before != guarded_after:
            self._deadline(Deadline.GUARD, tuple(key), guarded_before, guarded_after)
            self.unsettled = True
        elif old is not None and new is not None and old.phase is not STOPPING and new.phase is not STOPPING:
            return
        self._refresh_candidate(key)

    def _hold(self, run: Run, holds: bool) -> None:
        """It takes what it demands, or leaves it. Faulty devices that nobody holds are taken already, and stay so."""
        node, mask, demand = run.node, mask_of(run.devices), run.demand
        if mask:
            faulty = self.faulty_devices.get(node, 0)
            if faulty & mask:
                demand = sub(demand, Vector(devices=(faulty & mask).bit_count()))
            held, idle = self.held_devices.get(node, 0), self.idle_devices.get(node, 0)
            kept = self.kept_devices.get(node, 0)
            held, idle = (held | mask, idle & ~mask) if holds else (held & ~mask, idle | mask & ~(faulty | kept))
            _set_or_drop(self.held_devices, node, held or None)
            _set_or_drop(self.idle_devices, node, idle or None)
        elif self.host is not None:
            (self.host.take if holds else self.host.give)(node, demand)
        if holds:
            self.room.take(node, demand)
        else:
            self.room.give(node, demand)

    def _stand(self, old: Run | None, new: Run | None) -> None:
        """Where there are cells: its devices are held as guaranteed, or as opportunistic."""
        if self.pools is None:
            return
        row = new or old
        if row is None:
            return
        for run, sign in ((old, -1), (new, 1)):
            if run is not None and run.demand.devices:
                counts = self.regular if run.guaranteed else self.opportunistic
                _set_or_drop(counts, run.vc, (counts.get(run.vc, 0) + sign * run.demand.devices) or None)
            elif run is not None and not run.guaranteed:
                counts, held = self.opportunistic_cpus, max(run.demand.cpu_milli, 1000 * len(run.devices))
                _set_or_drop(counts, run.vc, (counts.get(run.vc, 0) + sign * held) or None)
        if not row.devices:
            return
        _add_or_discard(self.guests, row.vc, row.key, new is not None and not new.guaranteed)
        if self.jobs.rows[row.job_id].spec.guarantee is Guarantee.OVERFLOW:
            runs = (self.runs.rows[key] for key in self.active.get(row.job_id, ()))
            _add_or_discard(self.overflowing, row.vc, row.job_id, any(not run.guaranteed for run in runs))
        mask, node = mask_of(row.devices), row.node
        guaranteed = self.guaranteed_devices.get(node, 0) & ~mask
        if new is not None and new.guaranteed:
            guaranteed |= mask
        _set_or_drop(self.guaranteed_devices, node, guaranteed or None)
        self._hold_cells(node)

    def _hold_cells(self, node: int) -> None:
        if self.pools is not None:
            guests = self.guests_devices.get(node, 0)
            taken = self.guaranteed_devices.get(node, 0) | self.kept_devices.get(node, 0) & ~guests
            self.pools.hold(node, taken, (self.held_devices.get(node, 0) | guests) & ~taken)

    def _deadlines(self, key: tuple[int, ...], old: _Due, new: _Due) -> None:
        for (kind, before), (_, after) in zip(old, new, strict=True):
            if before != after:
                self._deadline(kind, key, before, after)

    def _deadline(self, kind: Deadline, key: tuple[int | str, ...], before: Micros | None, after: Micros | None) -> None:
        if before is not None:
            self.deadlines.remove((before, kind, key))
        if after is not None:
            self.deadlines.add((after, kind, key))

    def _refresh_candidate(self, key: RunKey) -> None:
        if key in self.runs.rows:
            self._stale[key] = None
        else:
            self._stale.pop(key, None)
            self._candidates.drop(key)

    def _update_candidate(self, key: RunKey) -> None:
        run, job = self.runs.rows[key], self.jobs.rows.get(key.job_id)
        if (
            job is not None
            and job.spec.job_class is JobClass.BEST_EFFORT
            and run.phase is not STOPPING
            and run.guarded_us is None
            and not self.holds_faulty(run)
        ):
            self._candidates.put(key, run, job, self.room.capacity_of(run.node))
        else:
            self._candidates.drop(key)

    def _node(self, old: Node | None, new: Node | None) -> None:
        row = new or old
        if row is None:
            return
        if old is not None and new is not None and _offers_the_same(old, new):
            return  # a report was counted, or its agent connected again
        _set_or_drop(self.node_ids, row.name, row.id if new else None)
        self.room.set_node(row.id, new)
        if self.host is not None:
            self.host.set_node(row.id, self._host_of(new))
        if old is None or new is None or old.capacity != new.capacity:
            self._count_idle(row.id)
        self._place_in_pool(row.id)
        self.unsettled = True
        if old is None or new is None or old.capacity != new.capacity:
            for key in self.runs_on.get(row.id, ()):
                self._refresh_candidate(key)

    def _host_of(self, row: Node | None) -> Node | None:
        """The node with what goes with none of its devices; None where it has none, or is not there."""
        if row is None or self.pools is None or not (count := row.capacity.devices):
            return None
        return changed(row, capacity=sub(row.capacity, times(self.pools.covered(row.capacity, count), count)))

    def cpus_of(self, node: int) -> Mask:
        """Those that runs hold as others hold devices; none of a node that has devices, or where there are no cells."""
        row = self.nodes.rows.get(node)
        if row is None or row.capacity.devices or self.pools is None or self.settings.by_count:
            return 0
        return (1 << cpus_of(row.capacity)) - 1

    def _count_idle(self, node: int) -> None:
        """A node has come, gone or changed: devices may have taken the place of CPUs."""
        idle, rows, index = self.cpus_of(node), self.devices.rows, 0
        if not idle:
            while (device := rows.get((node, index))) is not None:
                idle, index = idle | (not device.fault) << index, index + 1
        idle &= ~(self.held_devices.get(node, 0) | self.kept_devices.get(node, 0))
        _set_or_drop(self.idle_devices, node, idle or None)

    def _device(self, old: NodeDevice | None, new: NodeDevice | None) -> None:
        row = new or old
        if row is None:
            return
        bit = 1 << row.index
        held = bool(self.held_devices.get(row.node, 0) & bit)
        idle = self.idle_devices.get(row.node, 0)
        kept = bool(self.kept_devices.get(row.node, 0) & bit)
        idle = idle | bit if new is not None and not (held or kept or new.fault) else idle & ~bit
        if not self.cpus_of(row.node):
            _set_or_drop(self.idle_devices, row.node, idle or None)
        self._place_in_pool(row.node)
        was, now = old is not None and bool(old.fault), new is not None and bool(new.fault)
        if was == now:
            return
        if not held:  # nobody has it, and nobody can have it
            (self.room.take if now else self.room.give)(row.node, _ONE_DEVICE)
        faulty = self.faulty_devices.get(row.node, 0)
        _set_or_drop(self.faulty_devices, row.node, (faulty | bit if now else faulty & ~bit) or None)
        self.unsettled = True
        for run in self.holders(row.node, row.index):
            self._refresh_candidate(run.key)

    def _place_in_pool(self, node: int) -> None:
        """Of which pool the node is, and what of it is well and open."""
        if self.pools is None:
            return
        row, rows, devices = self.nodes.rows.get(node), self.devices.rows, []
        if row is not None and (count := row.capacity.devices):
            if (node, count - 1) in rows:
                devices = [device for index in range(count) if (device := rows.get((node, index))) is not None]
            if len(devices) < count:
                row = None  # as it joins, or is loaded, or its inventory changes, its devices come one by one
        self.pools.set_node(node, row, devices)
        self._hold_cells(node)

    def _vc(self, old: VirtualCluster | None, new: VirtualCluster | None) -> None:
        row = new or old
        if row is None or self.pools is None:
            return
        if old is None or new is None:
            _set_or_drop(self.vc_ids, row.name, row.id if new else None)
        self.pools.set_vc(row.id, new)
        self.unsettled = self.board_changed = True

    def _binding(self, old: Binding | None, new: Binding | None) -> None:
        if self.pools is not None:
            self.pools.set_binding(old, new)
        self.unsettled = True

    def _order(self, old: ExchangeOrder | None, new: ExchangeOrder | None) -> None:
        self.traded.order(old, new)
        row = new or old
        if row is not None:
            self._deadlines((row.id,), order_deadlines(old), order_deadlines(new))
        self.unsettled = self.board_changed = True

    def _exchange(self, old: Exchange | None, new: Exchange | None) -> None:
        kinds, row = self.traded.exchange(old, new), new or old
        if row is not None:
            self._deadlines((row.id,), exchange_deadlines(old), exchange_deadlines(new))
        for kind in kinds:
            if self.pools is not None:
                self.pools.set_exchanged(*kind, self.traded.in_force.get(kind, 0))
        self.unsettled = self.board_changed = True

    def _idle(self, old: IdleCells | None, new: IdleCells | None) -> None:
        before, after = old.due_us if old else None, new.due_us if new else None
        if before != after and (row := new or old) is not None:
            self._deadline(Deadline.IDLE, (row.vc, row.pool, row.level), before, after)
        self.unsettled = True

    def _operation(self, old: Operation | None, new: Operation | None) -> None:
        for row, there in ((old, False), (new, True)):
            if row is None:
                continue
            (self.room.take if there else self.room.give)(row.node, row.kept)
            _add_or_discard(self.earmarks_of, row.job_id, row.id, there)
            for key in row.victims:
                others = [i for i in self.promised_by.get(key, ()) if i != row.id]
                _set_or_drop(self.promised_by, key, tuple(sorted(others + [row.id] * there)) or None)
        if (old is None or new is None) and (row := old or new) is not None and row.devices:
            self._keep(row, new is not None)
        before, after = old.deadline_us if old else None, new.deadline_us if new else None
        if before != after:
            self._deadline(Deadline.EARMARK, ((old or new).id,), before, after)  # type: ignore[union-attr]  # one is there
        self.unsettled = True

    def _keep(self, earmark: Operation, keeps: bool) -> None:
        """Devices, idle or not yet, that are kept for the job."""
        node, mask = earmark.node, 0
        for devices in earmark.devices:
            mask |= mask_of(devices)
        kept, idle = self.kept_devices.get(node, 0), self.idle_devices.get(node, 0)
        neither = self.faulty_devices.get(node, 0) | self.held_devices.get(node, 0)
        kept, idle = (kept | mask, idle & ~mask) if keeps else (kept & ~mask, idle | mask & ~neither)
        spec, more = self.jobs.rows[earmark.job_id].spec, earmark.want.devices
        if spec.guarantee is Guarantee.OPPORTUNISTIC:
            guests = self.guests_devices.get(node, 0)
            _set_or_drop(self.guests_devices, node, (guests | mask if keeps else guests & ~mask) or None)
        else:
            _set_or_drop(self.regular, spec.vc, (self.regular.get(spec.vc, 0) + (more if keeps else -more)) or None)
        _set_or_drop(self.kept_devices, node, kept or None)
        _set_or_drop(self.idle_devices, node, idle or None)
        self._hold_cells(node)

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
            "queues": {name: list(queue) for name, queue in self.queues.items()},
            "runs_on": {node: set(keys) for node, keys in self.runs_on.items()},
            "active": {job: set(keys) for job, keys in self.active.items()},
            "node_ids": dict(self.node_ids),
            "idle": dict(self.idle_devices),
            "held": dict(self.held_devices),
            "faulty": dict(self.faulty_devices),
            "kept": dict(self.kept_devices),
            "guests": dict(self.guests_devices),
            "guaranteed": dict(self.guaranteed_devices),
            "opportunistic": (dict(self.opportunistic), dict(self.opportunistic_cpus)),
            "regular": dict(self.regular),
            "guests_of": {vc: set(keys) for vc, keys in self.guests.items()},
            "overflowing": {vc: set(jobs) for vc, jobs in self.overflowing.items()},
            "lanes": {name: list(queue) for name, queue in self.lanes.items()},
            "vc_ids": dict(self.vc_ids),
            "pools": None if self.pools is None else self.pools.snapshot(),
            "traded": self.traded.snapshot(),
            "requests": dict(self.requests),
            "earmarks_of": {job: set(ids) for job, ids in self.earmarks_of.items()},
            "dependents": {job: set(ids) for job, ids in self.dependents.items()},
            "elements_of": {job: set(ids) for job, ids in self.elements_of.items()},
            "promised_by": dict(self.promised_by),
            "deadlines": list(self.deadlines),
            "room": self.room.snapshot(),
            "host": self.host.snapshot() if self.host is not None else None,
            "candidates": self.candidates.snapshot(),
        }


_ONE_DEVICE = Vector(0, 0, 1)


def _no_index(_old: object, _new: object) -> None:
    """Of a table of which nothing follows."""


def _offers_the_same(a: Node, b: Node) -> bool:
    """In all that decides whether something fits there, the names of its cells included."""
    return (a.state, a.capacity, a.levels) == (b.state, b.capacity, b.levels) and (a.drained_us is None) == (
        b.drained_us is None
    )


def _add_or_discard(index: dict[K, set[R]], key: K, member: R, there: bool) -> None:
    if there:
        index.setdefault(key, set()).add(member)
    elif (members := index.get(key)) is not None:
        members.discard(member)
        if not members:
            del index[key]


def _set_or_drop(index: dict[K, R], key: K, value: R | None) -> None:
    if value is None:
        index.pop(key, None)
    else:
        index[key] = value
