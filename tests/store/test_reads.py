"""What a list reads is what it shows: not all that there ever was."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, event, text

from scheduler_service import store
from scheduler_service.core.model import JobState
from scheduler_service.core.model.tenants.exchange import ExchangeState
from scheduler_service.store.reading.exchange import list_exchanges
from scheduler_service.store.reading.load import list_jobs
from tests.store import make
from tests.store.make import EXCHANGE, OFFER, REQUEST, T

PAST = 3000


def repeat(conn: Connection, table: str, **changed: Any) -> None:
    """The row with id 1 stands also for as many that are over, with later ids."""
    ended = ", ".join(f"'{name}', {value}" for name, value in changed.items())
    row = f"jsonb_populate_record(row, jsonb_build_object('id', n, 'request_id', '', {ended}))"
    with conn.begin():
        copies = f"FROM {table} AS row, generate_series(10, {PAST + 9}) AS n WHERE id = 1"
        conn.execute(text(f"INSERT INTO {table} SELECT ({row}).* {copies}"))
        conn.execute(text(f"ANALYZE {table}"))


def rows_read(conn: Connection, read: Callable[[], object]) -> int:
    """How many rows PostgreSQL takes in hand for that."""
    sent: list[tuple[str, Any]] = []

    def note(_conn: Connection, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        sent.append((statement, parameters))

    event.listen(conn, "before_cursor_execute", note)
    try:
        read()
    finally:
        event.remove(conn, "before_cursor_execute", note)
    with conn.begin():
        plans = [conn.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", given).scalar_one() for query, given in sent]
    return sum(_taken(plan[0]["Plan"]) for plan in plans)


def _taken(node: dict[str, Any]) -> int:
    here = round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
    return here + sum(_taken(below) for below in node.get("Plans", ()))


def test_exchanges_that_are_over_are_not_read_where_nobody_asks_for_them(
    conn: Connection, writer: Connection, epoch: int
) -> None:
    store.commit(writer, epoch, make.new(OFFER, REQUEST, EXCHANGE), [])
    repeat(conn, "exchange", state=int(ExchangeState.RETURNED), returned_us=T + 9)
    live = (ExchangeState.MATCHED, ExchangeState.ACTIVE)
    assert [exchange.id for exchange in list_exchanges(conn, live)] == [1]
    assert rows_read(conn, lambda: list_exchanges(conn, live)) < 10
    assert rows_read(conn, lambda: list_exchanges(conn, live, vc=1)) < 10
    assert len(list_exchanges(conn, (*live, ExchangeState.RETURNED), limit=9)) == 9


def test_the_jobs_of_a_virtual_cluster_are_found_among_those_of_others(
    conn: Connection, writer: Connection, epoch: int
) -> None:
    store.commit(writer, epoch, make.new(make.job(1), make.job(2, spec=replace(make.SPEC, vc="vision"))), [])
    repeat(conn, "job", state=int(JobState.SUCCEEDED), ended_us=T + 9)
    assert [job.id for job, _ in list_jobs(conn, vc="vision")] == [2]
    assert rows_read(conn, lambda: list_jobs(conn, vc="vision")) < 10
