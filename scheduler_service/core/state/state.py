"""The state of the cluster: tables of rows, and the indices that make a step cost what it changes.

`State.put` is the only way to change anything. Each index is a function of the rows, updated by the table's `reindex` hook
(see `indices`) at every put, and so at every undo. Tests check the indices against `rebuild`, which builds them from the
rows again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scheduler_service.core.model import (
    Cluster,
)
from scheduler_service.core.model.settings import DEFAULTS, Settings
from scheduler_service.core.state.indices.jobs import of_earmark, of_job
from scheduler_service.core.state.indices.nodes import of_cluster, of_device, of_node
from scheduler_service.core.state.indices.operations import of_operation
from scheduler_service.core.state.indices.queues import of_memo
from scheduler_service.core.state.indices.runs import of_run, update_candidate
from scheduler_service.core.state.indices.share_groups import of_share_group, update_open_group
from scheduler_service.core.state.indices.virtual_clusters import of_binding, of_exchange, of_idle, of_posting, of_vc
from scheduler_service.core.state.open_groups import OpenGroups
from scheduler_service.core.state.pending import Pending
from scheduler_service.core.state.queue_order import OrderOf, always_by_priority
from scheduler_service.core.state.resources.candidates import Candidates
from scheduler_service.core.state.resources.idle_groups import IdleGroups
from scheduler_service.core.state.tables import Reindex, Tables

_LOADED = (
    *("cluster", "node", "device", "virtual_cluster", "cell_binding", "memo", "job", "run", "share_group", "earmark"),
    *("exchange_posting", "exchange", "exchange_surplus", "idle_cells", "history", "operation", "measurement", "switching"),
)
"""The order in which tables are loaded."""


_INDEX: dict[str, Reindex] = {
    "cluster": of_cluster,
    "job": of_job,
    "run": of_run,
    "share_group": of_share_group,
    "node": of_node,
    "device": of_device,
    "earmark": of_earmark,
    "virtual_cluster": of_vc,
    "cell_binding": of_binding,
    "exchange_posting": of_posting,
    "exchange": of_exchange,
    "idle_cells": of_idle,
    "memo": of_memo,
    "operation": of_operation,
}


class State(Tables):
    """The tables and their indices, with savepoints and undo; see the module and `Tables`."""

    def __init__(self, cluster: Cluster, settings: Settings = DEFAULTS, order_of: OrderOf = always_by_priority) -> None:
        super().__init__(cluster, settings, order_of, _INDEX)

    @property
    def candidates(self) -> Candidates:
        """The runs that trials may preempt. Brought up to date on access: most runs come and go without any policy looking."""
        for key in self.stale_candidates:
            update_candidate(self, key)
        self.stale_candidates.clear()
        return self.kept_candidates

    @property
    def open_groups(self) -> OpenGroups:
        """The share groups that jobs may join. Brought up to date on access."""
        for number in self.stale_open_groups:
            update_open_group(self, number)
        self.stale_open_groups.clear()
        return self.kept_open_groups

    @property
    def idle_groups(self) -> IdleGroups:
        """The nodes with the best idle devices for a task, on a site without virtual clusters. Brought up to date on access."""
        if self.kept_idle_groups.stale and self.pools is None:
            self.kept_idle_groups.update_offers(self.idle_devices, self.nodes.rows, self.devices.rows)
        return self.kept_idle_groups

    # ---- change and undo -----------------------------------------------------------------------------------------------

    def savepoint(self) -> tuple[int, int, int]:
        return len(self.journal.entries), len(self.log), len(self.changed_runs)

    def undo(self, to: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Returns to the savepoint; (0, 0, 0) is where the last `adopt` left the state."""
        self.journal.undo(to[0])
        del self.log[to[1] :]
        while len(self.changed_runs) > to[2]:  # also what came in as rows were put back: a run that had ended is no new one
            self.changed_runs.popitem()
        if not to[0]:
            self.pending = self.adopted_pending.copy()
        self.pending.look_at_all()
        self.delegated.clear()

    def settle(self) -> None:
        """Notes that the policies have looked at everything."""
        self.pending = Pending()

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """A supposition: inside it rows are changed by `put` as usual. At its end everything is restored: rows, indices, the
        log, `changed_runs` and `pending`. Suppositions may be nested.

        A policy must not propose a plan inside a supposition: the plan would be undone, too.
        """
        before, pending = self.savepoint(), self.pending
        self.pending = pending.copy()
        try:
            yield
        finally:
            self.undo(before)
            self.pending = pending

    def adopt(self) -> None:
        """Makes all changes since the last adopt final: they cannot be undone any more."""
        self.journal.clear()
        self.log.clear()
        self.changed_runs.clear()
        self.adopted_pending = self.pending.copy()
        self.delegated.clear()

    def restore(self, rows: Iterator[tuple[str, Any, Any]]) -> None:
        """Fills an empty state with loaded rows: (table name, key, row), in any order."""
        by_name = {table.name: table for table in self.tables()}
        order = {name: i for i, name in enumerate(_LOADED)}
        for name, key, row in sorted(rows, key=lambda r: (order[r[0]], r[1])):
            by_name[name].replace(key, row)
        self.adopt()

    # ---- for tests: everything that the indices hold, in a form that can be compared -------------------------------------

    def rebuild(self) -> "State":
        """Return a new state made from this one's rows; its `snapshot` equals this one's if the indices are right."""
        other = State(self.cluster, self.settings, self.order_of)
        other.restore((t.name, key, row) for t in self.tables() if t is not self.cluster_table for key, row in t.rows.items())
        return other

    def snapshot(self) -> dict[str, object]:
        """Return rows and indices as plain comparable values."""
        return {
            "rows": {table.name: dict(table.rows) for table in self.tables()},
            "queues": {
                at: {named: (queue.first, list(queue)) for named, queue in queues.items()} for at, queues in self.queues.items()
            },
            "kinds": {
                lane: {kind: list(queue) for kind, queue in self.kinds_waiting(lane).items()} for lane in self.site_queues
            },
            "without_devices": dict(self.without_devices),
            "runs_on": {node: set(keys) for node, keys in self.runs_on.items()},
            "active": {job: set(keys) for job, keys in self.active.items()},
            "tasks": (dict(self.ready), dict(self.begun), dict(self.unreachable)),
            "silent": set(self.silent),
            "node_ids": dict(self.node_ids),
            "deleted_ids": dict(self.deleted_ids),
            "idle": dict(self.idle_devices),
            "held": dict(self.held_devices),
            "groups_on": {node: set(ids) for node, ids in self.groups_on.items()},
            "faulty": dict(self.faulty_devices),
            "kept": dict(self.kept_devices),
            "kept_for_opportunistic": dict(self.kept_for_opportunistic),
            "guaranteed": dict(self.guaranteed_devices),
            "opportunistic": (dict(self.opportunistic), dict(self.opportunistic_cpus)),
            "opportunistic_runs": {vc: set(keys) for vc, keys in self.opportunistic_runs.items()},
            "without": dict(self.without),
            "within": dict(self.within),
            "guaranteed_runs": {vc: set(keys) for vc, keys in self.guaranteed_runs.items()},
            "overflowing": {vc: set(jobs) for vc, jobs in self.overflowing.items()},
            "demoted": {vc: set(jobs) for vc, jobs in self.demoted.items()},
            "running": {vc: list(queue) for vc, queue in self.running.items()},
            "vc_orders": dict(self.vc_orders),
            "memos_of": {job: set(ats) for job, ats in self.memos_of.items()},
            "subjects": {at: set(jobs) for at, jobs in self.subjects.items()},
            "charged": dict(self.charged),
            "due_memos": set(self.due_memos),
            "set_aside": set(self.set_aside),
            "beside": {reason: set(jobs) for reason, jobs in self.beside.items()},
            "open_nodes": self.open_nodes.snapshot(),
            "vc_ids": dict(self.vc_ids),
            "pools": None if self.pools is None else self.pools.snapshot(),
            "traded": self.exchange_index.snapshot(),
            "idle_of": {vc: set(kinds) for vc, kinds in self.idle_of.items()},
            "requests": dict(self.requests),
            "earmarks_of": {job: set(ids) for job, ids in self.earmarks_of.items()},
            "dependents": {job: set(ids) for job, ids in self.dependents.items()},
            "elements_of": {job: set(ids) for job, ids in self.elements_of.items()},
            "promised_by": dict(self.promised_by),
            "operations": (dict(self.operation_of), set(self.waiting_operations), dict(self.vacating_of)),
            "deadlines": list(self.deadlines),
            "room": self.free_resources.snapshot(),
            "traits": dict(self.suitable_nodes.traits),
            "host": self.host.snapshot() if self.host is not None else None,
            "candidates": self.candidates.snapshot(),
            "open_groups": self.open_groups.snapshot(),
            "idle_groups": self.idle_groups.snapshot(),
            "loads": {
                node: (int(requested), int(affinity))
                for node, (requested, affinity) in enumerate(zip(*self.loads(), strict=True))
                if requested or affinity
            },
        }
