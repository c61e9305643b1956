"""The statements of a commit, made once from `tables`: one for each table and kind of change.

Each takes one parameter, a JSON array of records (see `mapping.records`), so its text never changes and stays prepared, and the
number of round trips does not depend on the number of rows.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import Column, Table
from sqlalchemy.dialects import postgresql

from scheduler_service.store.mapping import exchange, rows
from scheduler_service.store.mapping.records import Record, Source, recorder
from scheduler_service.store.schema import tables
from scheduler_service.store.writing.pipeline import Statement

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]


class Writes(NamedTuple):
    """How the changes of one table are written."""

    table: str
    insert: Statement
    update: Statement
    delete: Statement
    new: Callable[[Any], Record]
    """Makes the record of a new row, which has every column."""
    changed: Callable[[Any], Record]
    """Makes that of a changed row: its key, and the columns that change in a row's life."""
    gone: Callable[[Any], Record]
    """Makes that of a deleted row: its key."""
    key: tuple[str, ...]
    takes_place: Callable[[Any, Any], bool]
    """Whether a changed row takes the place of another one, which has left it in the same commit: it is written after that."""


BEGIN = Statement(b"BEGIN", b"BEGIN")
COMMIT = Statement(b"COMMIT", b"COMMIT")
FENCE = Statement(b"fence", b"UPDATE leader SET commit_no = commit_no + 1 WHERE epoch = $1 RETURNING commit_no")
VALID = "SELECT FROM leader WHERE epoch = %s"


def _statement(name: str, sql: str) -> Statement:
    return Statement(name.encode(), sql.encode())


def _records(columns: Iterable[Column[Any]]) -> str:
    listed = ", ".join(f'"{column.name}" {column.type.compile(dialect=_DIALECT)}' for column in columns)
    return f"json_to_recordset($1::json) AS r({listed})"


def _writes(
    table: Table,
    key: tuple[str, ...],
    sources: Mapping[str, Source] = MappingProxyType({}),
    constant: str = "",
    takes_place: Callable[[Any, Any], bool] = lambda _old, _new: False,
) -> Writes:
    """`sources` are those of columns that are no field of the row; `constant` ones are set when the row is made, and never
    again."""
    columns = [c for c in table.columns if c.computed is None and c.server_default is None]
    names = ", ".join(f'"{c.name}"' for c in columns)
    changing = [c for c in columns if c.name not in key and c.name not in constant.split()]
    settings = ", ".join(f'"{c.name}" = r."{c.name}"' for c in changing)
    matches = " AND ".join(f'{table.name}."{name}" = r."{name}"' for name in key)
    keys = [table.columns[name] for name in key]
    return Writes(
        table.name,
        _statement(f"insert_{table.name}", f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {_records(columns)}"),
        _statement(
            f"update_{table.name}", f"UPDATE {table.name} SET {settings} FROM {_records([*keys, *changing])} WHERE {matches}"
        ),
        _statement(f"delete_{table.name}", f"DELETE FROM {table.name} USING {_records(keys)} WHERE {matches}"),
        recorder((c.name for c in columns), sources),
        recorder((*key, *(c.name for c in changing)), sources),
        recorder(key, sources),
        key,
        takes_place,
    )


_JOB_CONSTANT = (
    "name user_name request_id job_class demand_cpu_milli demand_memory_mib demand_devices grace_us command environment "
    "working_directory submitted_us spec_more array_job array_index vc"
)
_POSTING_CONSTANT = "kind vc pool level cells begin_us end_us devices posted_us expires_us bid swap by_proxy request_id"
_EXCHANGE_CONSTANT = (
    "offer request giver taker pool level cells begin_us end_us devices price agreed_us in_return_for request_id accepted_by"
)
_RUN_CONSTANT = "node devices demand_cpu_milli demand_memory_mib demand_devices"

WRITES = {
    writes.table: writes
    for writes in (
        # In the order in which rows refer to each other.
        _writes(tables.cluster, ("id",), constant="seed"),
        _writes(tables.node, ("id",), rows.NODE),
        _writes(tables.virtual_cluster, ("id",), rows.VC),
        _writes(tables.cell_binding, ("pool", "level", "index")),
        _writes(tables.exchange_posting, ("id",), exchange.POSTING, _POSTING_CONSTANT),
        _writes(tables.exchange, ("id",), exchange.EXCHANGE, _EXCHANGE_CONSTANT),
        _writes(tables.exchange_ledger, ("vc", "exchange", "what")),
        _writes(tables.exchange_surplus, ("vc",)),
        _writes(tables.idle_cells, ("vc", "pool", "level")),
        _writes(tables.job, ("id",), rows.JOB, _JOB_CONSTANT),
        _writes(tables.run, ("job_id", "run", "task"), rows.RUN, _RUN_CONSTANT, lambda old, new: old.awaits and not new.awaits),
        _writes(tables.share_group, ("id",), {"plan": "rows"}, "vc"),
        _writes(tables.operation, ("id",), rows.OPERATION, "job_id source begun_us"),
        _writes(tables.memo, ("policy", "subject"), rows.MEMO),
        _writes(tables.history, ("user_name", "script"), rows.HISTORY),
        _writes(tables.device, ("node", "index")),
        _writes(tables.earmark, ("id",), rows.EARMARK),
    )
}

_EVENT = [column for column in tables.job_event.columns if column.name != "commit_no"]
_EVENT_NAMES = ", ".join(f'"{column.name}"' for column in _EVENT)
EVENTS = _statement(
    "insert_job_event",
    f"INSERT INTO job_event (commit_no, {_EVENT_NAMES}) "
    f"SELECT (SELECT commit_no FROM leader), {_EVENT_NAMES} FROM {_records(_EVENT)}",
)
