"""The rows of cell exchange as records of their tables, and back; see `rows`. An id of 0 is null in a record."""

from collections.abc import Sequence
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

Record = dict[str, Any]


def _lot(lot: Lot) -> Record:
    return {
        "pool": lot.pool,
        "level": lot.level,
        "cells": lot.count,
        "begin_us": lot.begin_us,
        "end_us": lot.end_us,
        "devices": lot.devices,
    }


def posting_changed(p: Posting) -> Record:
    return {"id": p.id, "state": p.state, "begins_us": p.begins_us}


def posting_new(p: Posting) -> Record:
    return posting_changed(p) | {
        "kind": p.kind,
        "vc": p.vc,
        **_lot(p.lot),
        "posted_us": p.posted_us,
        "expires_us": p.expires_us,
        "bid": p.bid,
        "swap": None if p.swap is None else list(_lot(p.swap).values()),
        "by_proxy": p.by_proxy,
        "request_id": p.request_id,
    }


def exchange_changed(x: Exchange) -> Record:
    return {
        "id": x.id,
        "state": x.state,
        "return_asked_by": x.return_asked_by,
        "opened_us": x.opened_us,
        "returned_us": x.returned_us,
    }


def exchange_new(x: Exchange) -> Record:
    return exchange_changed(x) | {
        "offer": x.offer or None,
        "request": x.request or None,
        "giver": x.giver,
        "taker": x.taker,
        **_lot(x.lot),
        "price": x.price,
        "agreed_us": x.agreed_us,
        "in_return_for": x.in_return_for or None,
        "request_id": x.request_id,
        "accepted_by": accepted_by(x),
    }


def entry_new(e: LedgerEntry) -> Record:
    return {"vc": e.vc, "exchange": e.exchange, "what": e.what, "device_us": e.device_us, "at_us": e.at_us}


def surplus_new(s: Surplus) -> Record:
    return {"vc": s.vc, "device_us": s.device_us}


def idle_new(i: IdleCells) -> Record:
    return {"vc": i.vc, "pool": i.pool, "level": i.level, "history": i.history, "due_us": i.due_us}


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
