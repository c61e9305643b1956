"""`commit`, the only writer: the changes of a step become durable, all or none, and only under a valid epoch."""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import psycopg
from psycopg import errors as pg
from sqlalchemy import Connection, Engine, text

from scheduler_service.core.model import JobEvent
from scheduler_service.core.state.journal import Change
from scheduler_service.store.connect import asking
from scheduler_service.store.errors import (
    REQUESTS,
    CommitUnknown,
    DuplicateRequest,
    Fenced,
    Forgotten,
    Rejected,
    StoreError,
    Unavailable,
)
from scheduler_service.store.mapping.records import Record
from scheduler_service.store.mapping.story import event_new
from scheduler_service.store.writing.pipeline import Statement, execute
from scheduler_service.store.writing.statements import BEGIN, COMMIT, EVENTS, FENCE, VALID, WRITES

encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_READ = text("SELECT epoch, commit_no FROM leader FOR UPDATE")


class Work(NamedTuple):
    """One statement, its records, and whether each of them must have met a row."""

    table: str
    kind: Literal["insert", "update", "delete"]
    statement: Statement
    records: list[Record]


def commit(conn: Connection, epoch: int, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
    """Makes the changes and events durable in one transaction and returns its number, which is one more than the last.

    The connection must be in no transaction, and is in none afterwards. The statements go through libpq itself, in one
    pipeline, since every submit waits for this. COMMIT follows once they are answered: a fence and counts that raise in
    the server, so that it could go with them, cost more there than a second round trip.

    Raises Fenced if `epoch` has ended; Rejected (DuplicateRequest) when a constraint refuses; Unavailable when the
    connection was lost before COMMIT: nothing was committed after these three. Raises CommitUnknown when it was lost
    from COMMIT on: ask `outcome`.
    """
    try:
        work = [(w, encode(w.records).encode()) for w in plan(changes, events)]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as fault:
        raise Rejected("", f"a row cannot be written: {type(fault).__name__}: {fault}") from fault
    with asking():
        pooled = conn.connection
    driver = pooled.driver_connection
    assert isinstance(driver, psycopg.Connection)
    prepared: set[bytes] = pooled.info.setdefault("prepared", set())  # of this connection, and gone with it
    number = _write(conn, driver, prepared, epoch, work)
    try:
        execute(driver.pgconn, prepared, [(COMMIT, None)])
    except psycopg.Error as error:
        raise _failure(conn, driver, error) from error
    return number


def plan(changes: Sequence[Change], events: Sequence[JobEvent]) -> list[Work]:
    """The statements, in an order in which each row finds those that it refers to, and none meets one that it replaces."""
    inserts: dict[str, list[Record]] = {}
    updates: dict[str, list[Record]] = {}
    deletes: dict[str, list[Record]] = {}
    last: dict[str, list[Record]] = {}
    for table, _key, old, new in changes:
        writes = WRITES[table]
        if new is None:
            deletes.setdefault(table, []).append(writes.gone(old))
        elif old is None:
            inserts.setdefault(table, []).append(writes.new(new))
        elif writes.takes_place(old, new):
            last.setdefault(table, []).append(writes.changed(new))
        else:
            updates.setdefault(table, []).append(writes.changed(new))
    work = []
    if deletes:
        work += [Work(name, "delete", WRITES[name].delete, deletes[name]) for name in reversed(WRITES) if name in deletes]
    for name, writes in WRITES.items():
        if name in updates:
            work.append(Work(name, "update", writes.update, updates[name]))
        if name in last:
            work.append(Work(name, "update", writes.update, last[name]))
        if name in inserts:
            work.append(Work(name, "insert", writes.insert, inserts[name]))
    if events:
        work.append(Work("job_event", "insert", EVENTS, [event_new(line, event) for line, event in enumerate(events)]))
    return work


def _write(
    conn: Connection, driver: "psycopg.Connection[Any]", prepared: set[bytes], epoch: int, work: list[tuple[Work, bytes]]
) -> int:
    """Everything before COMMIT. The fence is the first statement, but its answer is read together with the others'."""
    calls = [(w.statement, records) for w, records in work]
    try:
        _, fence, *done = execute(driver.pgconn, prepared, [(BEGIN, None), (FENCE, b"%d" % epoch), *calls])
    except psycopg.Error as error:
        raise _failure(conn, driver, error, epoch) from error
    if not fence.ntuples:
        driver.rollback()
        raise Fenced(epoch)
    for (w, _), result in zip(work, done, strict=True):
        missing = len(w.records) - (result.command_tuples or 0)
        if missing:
            driver.rollback()
            raise Rejected(f"{w.table}_present", f"{missing} of {len(w.records)} rows do not exist")
    return int(fence.get_value(0, 0) or 0)


def _failure(conn: Connection, driver: "psycopg.Connection[Any]", error: psycopg.Error, epoch: int | None = None) -> StoreError:
    """Leave the connection usable (a lost one is reopened at its next use) and return what the error means.

    `epoch` is None when COMMIT itself failed. Before, a refusal may only follow from changes that another leader made, whose
    fence the other statements of the pipeline did not wait for: so it is asked again.
    """
    try:
        driver.rollback()
        fenced = epoch is not None and driver.execute(VALID, (epoch,)).fetchone() is None
        driver.rollback()
    except psycopg.Error:
        fenced = False
    if driver.closed or driver.broken:
        conn.invalidate()
        return CommitUnknown(error) if epoch is None else Unavailable(error)
    if epoch is not None and fenced:
        return Fenced(epoch)
    if isinstance(error, pg.InvalidSqlStatementName):  # somebody else has this session, too, such as a pooler's clients
        conn.invalidate()
        return Unavailable(error)
    # Such as a deadlock, a full disk, or a limit of time; or a primary that is a standby now.
    if isinstance(error, psycopg.OperationalError | pg.ReadOnlySqlTransaction):
        return Unavailable(error)
    constraint = error.diag.constraint_name or ""
    detail = " ".join(filter(None, (error.diag.message_primary or str(error), error.diag.message_detail)))
    if isinstance(error, pg.UniqueViolation) and constraint in REQUESTS:
        return DuplicateRequest(constraint, detail)
    return Rejected(constraint, detail)


def outcome(engine: Engine, epoch: int, commit_no_before: int) -> Literal["committed", "not committed"]:
    """Find out whether the commit that raised CommitUnknown succeeded; `commit_no_before` is the number of the one before it.

    Waits for a transaction that the server has not ended yet, as that one holds the leader's row. Raises Fenced when
    another scheduler leads by now, Forgotten when commits before that one are gone, and Unavailable; after each the
    state must be loaded again.
    """
    with asking(), engine.begin() as conn:
        now_epoch, commit_no = conn.execute(_READ).one()
    if now_epoch != epoch:
        raise Fenced(epoch)
    if commit_no < commit_no_before:
        raise Forgotten(commit_no, commit_no_before)
    return "committed" if commit_no > commit_no_before else "not committed"
