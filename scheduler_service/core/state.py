"""The state of the cluster: tables of rows, and the indices that make a step cost what it changes.

`State.put` is the only way to change anything. Each index is a function of the rows, kept up by the table's `reindex`
hook at every put, and so also at every undo; `rebuilt` makes them anew from the rows, which is how tests know them right.
"""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, TypeVar

from sortedcontainers import SortedList

from scheduler_service.core.candidates import Candidates
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
from scheduler_service.core.room import Room
from scheduler_service.core.values import Micros

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
QueueKey = tuple[bool, int]


class Settings(NamedTuple):
    """What the engine itself must know of the site's choices (policies have their own)."""

    default_grace_us: Micros = 30_000_000
    earmark_ttl_us: Micros = 60_000_000
    """How long an earmark outlives the moment at which its last promised part became free."""


DEFAULTS = Settings()


class State:
    """See the module. Tables: cluster, jobs, runs, nodes, devices, operations (live rows only)."""

    def __init__(self, cluster: Cluster, settings: Settings = DEFAULTS) -> None:
        self.settings = settings
        self.journal = Journal()
        self.log: list[JobEvent] = []
        self.unsettled = True
        """Something happened since the policies last ran that may let a job start."""

        self.room = Room()
        self.candidates = Candidates()
        self.queues: dict[JobClass, SortedList] = {job_class: SortedList() for job_class in JobClass}
        """Queued jobs by class, as (has not run before, id): those that have run stand first, in submit order."""
        self.runs_on: dict[int, set[RunKey]] = {}
        self.active_run: dict[int, RunKey] = {}
        self.node_ids: dict[str, int] = {}
        self.idle_devices: dict[int, int] = {}
        """Node -> bit mask of the devices that have no share group."""
        self.requests: dict[tuple[str, str], int] = {}
        self.earmark_of: dict[int, int] = {}
        """Waiting trial -> its earmark operation."""
        self.promised_by: dict[RunKey, tuple[int, ...]] = {}
        """Victim -> the operations that wait for what it holds."""
        self.deadlines: SortedList = SortedList()
        """(deadline, operation), soonest first."""

        self.cluster_table: Table[int, Cluster] = Table("cluster", lambda _old, _new: None)
        self.jobs: Table[int, Job] = Table("job", self._job, lambda job: job.state in ENDED)
        self.runs: Table[RunKey, Run] = Table("run", self._run, lambda run: run.phase is RunPhase.ENDED)
        self.nodes: Table[int, Node] = Table("node", self._node)
        self.devices: Table[tuple[int, int], NodeDevice] = Table("device", self._device)
        self.operations: Table[int, Operation] = Table("operation", self._operation)
        self.cluster_table.replace(0, cluster)

    @property
    def cluster(self) -> Cluster:
        return self.cluster_table.rows[0]

    def tables(self) -> tuple[Table[Any, Any], ...]:
        return (self.cluster_table, self.jobs, self.runs, self.nodes, self.devices, self.operations)

    # ---- change and undo -----------------------------------------------------------------------------------------------

    def put(self, table: Table[K, R], key: K, row: R | None) -> None:
        """Sets or removes (None) a row, noted in the journal."""
        self.journal.put(table, key, row)

    def record(self, event: JobEvent) -> None:
        self.log.append(event)

    def savepoint(self) -> tuple[int, int]:
        return self.journal.savepoint(), len(self.log)

    def undo(self, to: tuple[int, int] = (0, 0)) -> None:
        """Returns to the savepoint; (0, 0) is where the last `adopt` left the state."""
        self.journal.undo(to[0])
        del self.log[to[1] :]
        self.unsettled = True

    def adopt(self) -> None:
        """Makes what was changed since the last adopt final: it cannot be undone any more."""
        self.journal.clear()
        self.log.clear()

    def changes(self) -> tuple[Change, ...]:
        return self.journal.changes()

    def restore(self, rows: Iterator[tuple[str, Any, Any]]) -> None:
        """Fills an empty state with loaded rows: (table name, key, row), in any order."""
        by_name = {table.name: table for table in self.tables()}
        order = {name: i for i, name in enumerate(("cluster", "node", "device", "job", "run", "operation"))}
        for name, key, row in sorted(rows, key=lambda r: (order[r[0]], r[1])):
            by_name[name].replace(key, row)

    # ---- indices -------------------------------------------------------------------------------------------------------

    def _job(self, old: Job | None, new: Job | None) -> None:
        was = old is not None and old.state is JobState.QUEUED
        now = new is not None and new.state is JobState.QUEUED
        if was != now or (was and now and old.requeued != new.requeued):  # type: ignore[union-attr]  # both are set there
            if was and old is not None:
                self.queues[old.spec.job_class].remove((not old.requeued, old.id))
            if now and new is not None:
                self.queues[new.spec.job_class].add((not new.requeued, new.id))
            self.unsettled = True
        if old is None or new is None:
            row = new or old
            if row is not None and row.request_id:
                _set_or_drop(self.requests, (row.user, row.request_id), row.id if new else None)
        if old is None or new is None or old.preempted_for_trial != new.preempted_for_trial:
            row = new or old
            if row is not None and (key := self.active_run.get(row.id)) is not None:
                self._refresh_candidate(key)

    def _run(self, old: Run | None, new: Run | None) -> None:
        row = new or old
        if row is None:
            return
        if old is None or new is None:
            on = self.runs_on.setdefault(row.node, set())
            if new is not None:
                on.add(row.key)
                self.active_run[row.job_id] = row.key
                self.room.take(row.node, row.demand)
            else:
                on.discard(row.key)
                if not on:
                    del self.runs_on[row.node]
                del self.active_run[row.job_id]
                self.room.give(row.node, row.demand)
            self.unsettled = True
        if old is None or new is None or RunPhase.STOPPING in (old.phase, new.phase):
            self._refresh_candidate(row.key)

    def _refresh_candidate(self, key: RunKey) -> None:
        run, job = self.runs.rows.get(key), self.jobs.rows.get(key.job_id)
        if (
            run is not None
            and job is not None
            and job.spec.job_class is JobClass.BEST_EFFORT
            and run.phase in (RunPhase.STARTING, RunPhase.RUNNING)
        ):
            self.candidates.put(
                key, run.node, run.demand, self.room.capacity_of(run.node), job.spec.grace_us, job.preempted_for_trial
            )
        else:
            self.candidates.drop(key)

    def _node(self, old: Node | None, new: Node | None) -> None:
        row = new or old
        if row is None:
            return
        if old is not None and new is not None and (old.state, old.capacity) == (new.state, new.capacity):
            return  # a report was counted, or its agent connected again
        _set_or_drop(self.node_ids, row.name, row.id if new else None)
        self.room.set_node(row.id, new)
        self.unsettled = True
        if old is None or new is None or old.capacity != new.capacity:
            for key in self.runs_on.get(row.id, ()):
                self._refresh_candidate(key)

    def _device(self, old: NodeDevice | None, new: NodeDevice | None) -> None:
        row = new or old
        if row is None:
            return
        bit = 1 << row.index
        idle = self.idle_devices.get(row.node, 0)
        idle = idle | bit if new is not None and not new.group else idle & ~bit
        _set_or_drop(self.idle_devices, row.node, idle or None)

    def _operation(self, old: Operation | None, new: Operation | None) -> None:
        for row, sign in ((old, -1), (new, 1)):
            if row is None:
                continue
            if sign > 0:
                self.room.take(row.node, row.kept)
                self.earmark_of[row.job_id] = row.id
            else:
                self.room.give(row.node, row.kept)
                del self.earmark_of[row.job_id]
            if row.deadline_us is not None:
                (self.deadlines.add if sign > 0 else self.deadlines.remove)((row.deadline_us, row.id))
            for key in row.victims:
                others = [i for i in self.promised_by.get(key, ()) if i != row.id]
                _set_or_drop(self.promised_by, key, tuple(sorted(others + [row.id] * (sign > 0))) or None)
        self.unsettled = True

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
            "active_run": dict(self.active_run),
            "node_ids": dict(self.node_ids),
            "idle": dict(self.idle_devices),
            "requests": dict(self.requests),
            "earmark_of": dict(self.earmark_of),
            "promised_by": dict(self.promised_by),
            "deadlines": list(self.deadlines),
            "room": self.room.snapshot(),
            "candidates": self.candidates.snapshot(),
        }


def _set_or_drop(index: dict[K, R], key: K, value: R | None) -> None:
    if value is None:
        index.pop(key, None)
    else:
        index[key] = value
