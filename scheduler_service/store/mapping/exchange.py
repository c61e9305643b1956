"""The rows of cell exchange as records of their tables, and back; see `records`. An id of 0 is null in a record."""

from collections.abc import Sequence
from dataclasses import astuple
from decimal import Decimal
from typing import Any

from scheduler_service.core.model.tenants.exchange import (
    Booking,
    Exchange,
    ExchangeState,
    LedgerEntry,
    Lot,
    Posting,
    PostingKind,
    PostingState,
    Surplus,
)
from scheduler_service.core.model.tenants.idle_history import IdleCells
from scheduler_service.core.state.exchange_index import accepted_by
from scheduler_service.store.mapping.records import Source, reader
from scheduler_service.store.schema import tables

_LOT = {name: f"lot.{name}" for name in ("pool", "level", "begin_us", "end_us", "devices")} | {"cells": "lot.count"}
POSTING: dict[str, Source] = _LOT | {"swap": lambda posting: None if posting.swap is None else astuple(posting.swap)}
EXCHANGE: dict[str, Source] = _LOT | {
    "offer": lambda exchange: exchange.offer or None,
    "request": lambda exchange: exchange.request or None,
    "in_return_for": lambda exchange: exchange.in_return_for or None,
    "accepted_by": accepted_by,
}


# -- records to rows: values in the order of the table's columns ----------------------------------------------------------


def _whole_number(amount: Decimal | int | None) -> int | None:
    return None if amount is None else int(amount)


_posting, _exchange, _entry, _surplus, _idle = map(
    reader, (tables.exchange_posting, tables.exchange, tables.exchange_ledger, tables.exchange_surplus, tables.idle_cells)
)


def to_posting(values: Sequence[Any]) -> Posting:
    p = _posting(values)
    return Posting(
        p.id,
        PostingKind(p.kind),
        p.vc,
        _to_lot(p),
        p.posted_us,
        p.expires_us,
        _whole_number(p.bid),
        None if p.swap is None else Lot(*p.swap),
        PostingState(p.state),
        p.by_proxy,
        p.begins_us,
        p.request_id,
    )


def _to_lot(row: Any) -> Lot:
    return Lot(row.pool, row.level, row.cells, row.begin_us, row.end_us, row.devices)


def to_exchange(values: Sequence[Any]) -> Exchange:
    e = _exchange(values)
    return Exchange(
        e.id,
        e.offer or 0,
        e.request or 0,
        e.giver,
        e.taker,
        _to_lot(e),
        int(e.price),
        e.agreed_us,
        e.in_return_for or 0,
        ExchangeState(e.state),
        e.return_asked_by,
        e.opened_us,
        e.returned_us,
        e.request_id,
    )


def to_entry(values: Sequence[Any]) -> LedgerEntry:
    entry = _entry(values)
    return LedgerEntry(entry.vc, entry.exchange, Booking(entry.what), int(entry.device_us), entry.at_us)


def to_surplus(values: Sequence[Any]) -> Surplus:
    s = _surplus(values)
    return Surplus(s.vc, int(s.device_us))


def to_idle(values: Sequence[Any]) -> IdleCells:
    i = _idle(values)
    return IdleCells(i.vc, i.pool, i.level, tuple((since, count) for since, count in i.history), i.due_us)
