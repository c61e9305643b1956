"""Reads of cell exchange: what a new leader needs of it, and, for the API, also postings and exchanges that are over."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, or_, select, tuple_

from scheduler_service.core.model.tenants.exchange import Exchange, ExchangeState, LedgerEntry, Posting, PostingState, Surplus
from scheduler_service.core.model.tenants.idle_history import IdleCells
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.store.connect import reading
from scheduler_service.store.mapping import exchange as to
from scheduler_service.store.mapping import rows
from scheduler_service.store.schema import tables

_posting, _exchange, _ledger = tables.exchange_posting, tables.exchange, tables.exchange_ledger
_idle = tables.idle_cells
_OPEN = select(_posting).where(_posting.c.state == int(PostingState.OPEN)).order_by(_posting.c.id)
_LIVE = select(_exchange).where(_exchange.c.returned_us.is_(None)).order_by(_exchange.c.id)
_SURPLUSES = select(tables.exchange_surplus).order_by(tables.exchange_surplus.c.vc)
_IDLE = select(_idle).order_by(_idle.c.vc, _idle.c.pool.collate("C"), _idle.c.level.collate("C"))
_VCS = select(tables.virtual_cluster).order_by(tables.virtual_cluster.c.id)


@dataclass(frozen=True, slots=True)
class Market:
    """The exchange as a new leader needs it: live postings and exchanges, and each virtual cluster's surplus and idle cells."""

    postings: tuple[Posting, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    surpluses: tuple[Surplus, ...] = ()
    idle: tuple[IdleCells, ...] = ()


def live_market(conn: Connection) -> Market:
    """Load the market inside a transaction of the caller."""
    return Market(
        tuple(map(to.to_posting, conn.execute(_OPEN))),
        tuple(map(to.to_exchange, conn.execute(_LIVE))),
        tuple(map(to.to_surplus, conn.execute(_SURPLUSES))),
        tuple(map(to.to_idle, conn.execute(_IDLE))),
    )


# ---- for the API -------------------------------------------------------------------------------------------------------


def find_posting(conn: Connection, posting_id: int) -> Posting | None:
    """The offer or request, on the board or not; None when there is no such posting."""
    with reading(conn):
        found = conn.execute(select(_posting).where(_posting.c.id == posting_id)).one_or_none()
    return None if found is None else to.to_posting(found)


def find_exchanges(conn: Connection, exchange_ids: Collection[int]) -> list[Exchange]:
    """Those exchanges, over or not, and what is given in return for them; in order."""
    ids = list(exchange_ids)
    query = select(_exchange).where(or_(_exchange.c.id.in_(ids), _exchange.c.in_return_for.in_(ids))).order_by(_exchange.c.id)
    with reading(conn):
        return [to.to_exchange(row) for row in conn.execute(query)]


def find_posted(conn: Connection, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Posting]:
    """The postings that these requests, each (virtual cluster, request_id), made; an empty request_id made none."""
    asked = [(vc, request_id) for vc, request_id in requests if request_id]
    query = select(_posting).where(tuple_(_posting.c.vc, _posting.c.request_id).in_(asked), _posting.c.request_id != "")
    with reading(conn):
        found = [to.to_posting(row) for row in conn.execute(query)] if asked else []
    return {(posting.vc, posting.request_id): posting for posting in found}


def find_accepted(conn: Connection, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Exchange]:
    """The same for exchanges that a virtual cluster made by accepting a posting; of a swap, the first."""
    asked = [(vc, request_id) for vc, request_id in requests if request_id]
    key = tuple_(_exchange.c.accepted_by, _exchange.c.request_id)
    query = select(_exchange).where(key.in_(asked), _exchange.c.request_id != "")
    with reading(conn):
        found = conn.execute(query).all() if asked else []
    return {(row.accepted_by, row.request_id): to.to_exchange(row) for row in found}


def list_postings(
    conn: Connection, states: Collection[PostingState] = (), vc: int = 0, before_id: int | None = None, limit: int = 100
) -> list[Posting]:
    """Newest first: in these states (none: in every state), of this virtual cluster (0: of all), with ids less than
    `before_id`, and at most `limit`."""
    query = _page(_posting, states, before_id, limit)
    if vc:
        query = query.where(_posting.c.vc == vc)
    with reading(conn):
        return [to.to_posting(row) for row in conn.execute(query)]


def list_exchanges(
    conn: Connection, states: Collection[ExchangeState] = (), vc: int = 0, before_id: int | None = None, limit: int = 100
) -> list[Exchange]:
    """As `list_postings`; a virtual cluster's are those that it is a side of."""
    query = _page(_exchange, states, before_id, limit)
    if states and ExchangeState.RETURNED not in states:
        query = query.where(_exchange.c.returned_us.is_(None))  # so that the index of live exchanges serves
    if vc:
        query = query.where(or_(_exchange.c.giver == vc, _exchange.c.taker == vc))
    with reading(conn):
        return [to.to_exchange(row) for row in conn.execute(query)]


def _page(table: Table, states: Collection[int], before_id: int | None, limit: int) -> Select[Any]:
    query = select(table).order_by(table.c.id.desc()).limit(limit)
    if states:
        query = query.where(table.c.state.in_([int(state) for state in states]))
    return query if before_id is None else query.where(table.c.id < before_id)


def live_of_offers(conn: Connection, offers: Collection[int]) -> list[Exchange]:
    """The exchanges that have some of these offers and are not over, in order."""
    query = _LIVE.where(_exchange.c.offer.in_(list(offers)))
    with reading(conn):
        return [to.to_exchange(row) for row in conn.execute(query)] if offers else []


def list_ledger(conn: Connection, vc: int = 0, before_exchange: int | None = None, limit: int = 100) -> list[LedgerEntry]:
    """Everything that was booked for the newest `limit` exchanges with ids less than `before_exchange`: of this virtual
    cluster, or (0) of all. Of the newest exchange first; within one in the order in which it was booked."""
    picked = select(_ledger.c.exchange).distinct().order_by(_ledger.c.exchange.desc()).limit(limit)
    if vc:
        picked = picked.where(_ledger.c.vc == vc)
    if before_exchange is not None:
        picked = picked.where(_ledger.c.exchange < before_exchange)
    query = select(_ledger).where(_ledger.c.exchange.in_(picked.scalar_subquery()))
    if vc:
        query = query.where(_ledger.c.vc == vc)
    query = query.order_by(_ledger.c.exchange.desc(), _ledger.c.what, _ledger.c.vc)
    with reading(conn):
        return [to.to_entry(row) for row in conn.execute(query)]


def list_surpluses(conn: Connection) -> list[Surplus]:
    """In the order of the virtual clusters' creation; also those of virtual clusters that are gone."""
    with reading(conn):
        return [to.to_surplus(row) for row in conn.execute(_SURPLUSES)]


def list_vcs(conn: Connection) -> list[VirtualCluster]:
    """Every virtual cluster, in the order of their creation."""
    with reading(conn):
        return [rows.to_vc(row) for row in conn.execute(_VCS)]
