"""What every state would be in the database: each change that a test adopts is judged by the rules of the tables.

`watch_states` has it so for all tests of the process, by whatever the steps are taken: a driver, a state machine, a simulation,
a service. So no test of the engine can leave it out. Tests that simulate for the sake of what is measured have the
beginning of each simulation judged (`judged_steps`): scenarios of tests/evidence, and random runs of all policies, are judged
whole.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from scheduler_service.core.model import JobEvent, Run
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.state.journal import Change, net
from scheduler_service.core.state.state import State
from scheduler_service.store.errors import StoreError
from scheduler_service.store.mapping import exchange, rows
from scheduler_service.store.memory.commit import commit
from scheduler_service.store.memory.database import Memory
from scheduler_service.store.writing.statements import WRITES

_READ: dict[str, Callable[[Sequence[Any]], Any]] = {
    "cluster": rows.to_cluster,
    "node": rows.to_node,
    "device": rows.to_device,
    "virtual_cluster": rows.to_vc,
    "cell_binding": rows.to_binding,
    "exchange_posting": exchange.to_posting,
    "exchange": exchange.to_exchange,
    "exchange_ledger": exchange.to_entry,
    "exchange_surplus": exchange.to_surplus,
    "idle_cells": exchange.to_idle,
    "job": rows.to_job,
    "share_group": rows.to_share_group,
    "operation": rows.to_operation,
    "memo": rows.to_memo,
    "history": rows.to_history,
    "earmark": rows.to_earmark,
}
_EPOCH = 1
_ORDER = {name: place for place, name in enumerate(WRITES)}


class Stored:
    """A store in memory that is told what one state adopts."""

    def __init__(self, state: State) -> None:
        """Holds the rows that the state has, as they were before the changes that are not adopted yet. Of a state that was
        restored it lacks those that the state has forgotten, to which others may refer."""
        self.memory = Memory()
        self.memory.epoch = _EPOCH
        rows = {(table.name, key): row for table in state.tables() if table.durable for key, row in table.rows.items()}
        for change in net(state.journal.entries):
            rows[change.table, change.key] = change.old
        there = [Change(name, key, None, row) for (name, key), row in rows.items() if row is not None]
        self.memory.checks_references = len(there) <= 1
        placed = [change if change.table != "run" else change._replace(new=_as_placed(change.new)) for change in there]
        self.write(sorted(placed, key=lambda change: _ORDER[change.table]), ())
        moved = zip(placed, there, strict=True)
        self.write([is_._replace(old=was.new) for was, is_ in moved if was.new is not is_.new], ())

    def write(self, changes: Sequence[Change], events: Sequence[JobEvent]) -> None:
        try:
            commit(self.memory, _EPOCH, changes, events)
        except StoreError as refusal:
            raise AssertionError(f"the database would refuse this step: {refusal}") from refusal
        for change in changes:
            assert (read := self._read(change)) == change.new, f"written and read back, {change.new} is {read}"
        self.memory.tables["job_event"].forget()

    def _read(self, change: Change) -> Any:
        """The row as a new leader would read it."""
        table, writes = self.memory.tables[change.table], WRITES[change.table]
        row = change.old if change.new is None else change.new
        record = table.records.get(table.key_of(writes.gone(row)))
        if record is None:
            return None
        values = [record[name] for name in table.names]  # they have been through JSON
        read = _READ.get(change.table)
        return rows.to_run((*values, row.vc)) if read is None else read(values)


def _as_placed(run: Run) -> Run:
    """As it was before it was parked: the columns say where it was placed."""
    if run.parking is None or not run.parking.devices:
        return run
    return with_changes(run, devices=run.placed_on, demand=run.asked, parking=run.parking._replace(devices=()))


_limit: int | None = None


@contextmanager
def judged_steps(limit: int | None) -> Iterator[None]:
    """Only the first `limit` steps of each state are judged meanwhile; None: all."""
    global _limit
    before, _limit = _limit, limit
    try:
        yield
    finally:
        _limit = before


def watch_states() -> None:
    """From now on no state of this process can adopt what its store in memory refuses."""
    adopt, twins, steps = State.adopt, WeakKeyDictionary[State, Stored](), WeakKeyDictionary[State, int]()

    @wraps(adopt)  # for a test of what no database is to hold
    def adopt_if_stored(state: State) -> None:
        steps[state] = steps.get(state, 0) + 1
        if _limit is not None and steps[state] > _limit:
            twins.pop(state, None)
        elif state.journal.entries or state.log:
            if (twin := twins.get(state)) is None:
                twin = twins[state] = Stored(state)
            twin.write(net(state.journal.entries), state.log)
        adopt(state)

    changed: Any = State
    changed.adopt = adopt_if_stored
