"""The rows of cell exchange as records of their tables, and back; see `records`. An id of 0 is null in a record."""

from collections.abc import Sequence
from dataclasses import astuple
from decimal import Decimal
from typing import Any

from scheduler_service.core.model.exchange import (
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
from scheduler_service.core.model.idle_history import IdleCells
from scheduler_service.core.state.exchange_index import accepted_by
from scheduler_service.store.mapping.records import Source

_LOT = {name: f"lot.{name}" for name in ("pool", "level", "begin_us", "end_us", "devices")} | {"cells": "lot.count"}
POSTING: dict[str, Source] = _LOT | {"swap": lambda posting: None if posting.swap is None else astuple(posting.swap)}
EXCHANGE: dict[str, Source] = _LOT | {
    "offer": lambda exchange: exchange.offer or None,
    "request": lambda exchange: exchange.request or None,
    "in_return_for": lambda exchange: exchange.in_return_for or None,
    "accepted_by": accepted_by,
}


# -- records to rows: values in the order of the table's columns ----------------------------------------------------------


def _whole(amount: Decimal | int | None) -> int | None:
    return None if amount is None else int(amount)


def to_posting(v: Sequence[Any]) -> Posting:
    swap = None if v[12] is None else Lot(*v[12])
    times, after = (v[9], v[10]), (PostingState(v[13]), *v[14:17])
    return Posting(v[0], PostingKind(v[1]), v[2], Lot(*v[3:9]), *times, _whole(v[11]), swap, *after)


def to_exchange(v: Sequence[Any]) -> Exchange:
    sides, lot = (v[1] or 0, v[2] or 0, v[3], v[4]), Lot(*v[5:11])
    return Exchange(v[0], *sides, lot, int(v[11]), v[12], v[13] or 0, ExchangeState(v[14]), *v[15:19])


def to_entry(v: Sequence[Any]) -> LedgerEntry:
    return LedgerEntry(v[0], v[1], Booking(v[2]), int(v[3]), v[4])


def to_surplus(v: Sequence[Any]) -> Surplus:
    return Surplus(v[0], int(v[1]))


def to_idle(v: Sequence[Any]) -> IdleCells:
    history = tuple((since, count) for since, count in v[3])
    return IdleCells(v[0], v[1], v[2], history, v[4])
