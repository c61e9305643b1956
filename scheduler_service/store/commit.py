"""`commit`, the only writer: the changes of a step become durable, all or none, and only under a valid epoch."""

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import psycopg
from psycopg import errors as pg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from scheduler_service.core.job import JobEvent
from scheduler_service.core.journal import Change
from scheduler_service.store.errors import CommitUnknown, DuplicateRequest, Fenced, Rejected, StoreError, Unavailable
from scheduler_service.store.rows import Record, event_new
from scheduler_service.store.statements import EVENTS, FENCE, VALID, WRITES

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_READ = text("SELECT epoch, commit_no FROM leader FOR UPDATE")


class _Work(NamedTuple):
    """One statement, its records, and whether each of them must have met a row."""

    table: str
    sql: str
    records: list[Record]


def commit(conn: Connection, epoch: int, changes: Sequence[Change], events: Sequence[JobEvent]) -> int:
    """Makes the changes and events durable in one transaction and returns its number, which is one more than the last.

    The connection must be in no transaction, and is in none afterwards. The statements go to the driver itself, in one
    pipeline, since every submit waits for this.

    Raises Fenced when `epoch` is over; Rejected (DuplicateRequest) when a constraint refuses; Unavailable when the
    connection was lost before COMMIT: nothing was committed after these three. Raises CommitUnknown when it was lost
    from COMMIT on: ask `outcome`.
    """
    work = _plan(changes, events)
    try:
        driver = conn.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
    except DBAPIError as lost:
        raise Unavailable(lost.orig) from lost
    number = _write(conn, driver, epoch, work)
    try:
        driver.commit()
    except psycopg.Error as error:
        raise _failure(conn, driver, error) from error
    return number


def _plan(changes: Sequence[Change], events: Sequence[JobEvent]) -> list[_Work]:
    """The statements, in an order in which each row finds those that it refers to, and none meets one that it replaces."""
    inserts: dict[str, list[Record]] = {}
    updates: dict[str, list[Record]] = {}
    deletes: dict[str, list[Record]] = {}
    for table, _key, old, new in changes:
        writes = WRITES[table]
        if new is None:
            deletes.setdefault(table, []).append({name: getattr(old, name) for name in writes.key})
        elif old is None:
            inserts.setdefault(table, []).append(writes.new(new))
        else:
            updates.setdefault(table, []).append(writes.changed(new))
    work = []
    if deletes:
        work += [_Work(name, WRITES[name].delete, deletes[name]) for name in reversed(WRITES) if name in deletes]
    for name, writes in WRITES.items():
        if name in updates:
            work.append(_Work(name, writes.update, updates[name]))
        if name in inserts:
            work.append(_Work(name, writes.insert, inserts[name]))
    if events:
        work.append(_Work("job_event", EVENTS, [event_new(line, event) for line, event in enumerate(events)]))
    return work


def _write(conn: Connection, driver: "psycopg.Connection[Any]", epoch: int, work: list[_Work]) -> int:
    """Everything before COMMIT. The fence is the first statement, but its answer is read together with the others'."""
    try:
        with driver.pipeline():
            fence = driver.execute(FENCE, (epoch,), prepare=True)
            done = [driver.execute(w.sql, (_encode(w.records),), prepare=True) for w in work]
        row = fence.fetchone()
        met = [cursor.rowcount for cursor in done]
    except (psycopg.Error, ValueError) as error:
        raise _failure(conn, driver, error, epoch) from error
    if row is None:
        driver.rollback()
        raise Fenced(epoch)
    for w, count in zip(work, met, strict=True):
        if count != len(w.records):
            driver.rollback()
            raise Rejected(f"{w.table}_present", f"{len(w.records) - count} of {len(w.records)} rows do not exist")
    number: int = row[0]
    return number


def _failure(conn: Connection, driver: "psycopg.Connection[Any]", error: Exception, epoch: int | None = None) -> StoreError:
    """Leaves the connection usable (a lost one is made anew at its next use) and says what the error means.

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
    if isinstance(error, psycopg.OperationalError):  # such as a deadlock, a full disk, or a limit of time
        return Unavailable(error)
    if not isinstance(error, psycopg.Error):
        return Rejected("", str(error))
    constraint = error.diag.constraint_name or ""
    detail = " ".join(filter(None, (error.diag.message_primary or str(error), error.diag.message_detail)))
    if isinstance(error, pg.UniqueViolation) and constraint == "job_request_once":
        return DuplicateRequest(constraint, detail)
    return Rejected(constraint, detail)


def outcome(engine: Engine, epoch: int, commit_no_before: int) -> Literal["committed", "not committed"]:
    """What became of the commit that raised CommitUnknown; `commit_no_before` is the number of the one before it.

    Waits for a transaction that the server has not ended yet, as that one holds the leader's row. Raises Fenced when
    another scheduler leads by now, and Unavailable; after either the state must be loaded again.
    """
    try:
        with engine.begin() as conn:
            now_epoch, commit_no = conn.execute(_READ).one()
    except DBAPIError as lost:
        raise Unavailable(lost.orig) from lost
    if now_epoch != epoch:
        raise Fenced(epoch)
    return "committed" if commit_no > commit_no_before else "not committed"
