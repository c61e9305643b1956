"""The twin's reads of cell exchange; see `memory`, whose part they are."""

from collections.abc import Collection

from scheduler_service.core.model.exchange import Exchange, ExchangeOrder, ExchangeState, LedgerEntry, OrderState, Surplus
from scheduler_service.core.model.virtual_clusters import VirtualCluster
from scheduler_service.store.mapping import exchange as to
from scheduler_service.store.mapping import rows
from scheduler_service.store.mapping.rows import Record
from scheduler_service.store.reading.exchange import Market
from scheduler_service.store.twin.database import Memory


def live_market(memory: Memory) -> Market:
    """See `reading.exchange.live_market`."""
    of = memory.tables
    return Market(
        tuple(of["exchange_order"].rows(to.to_order, lambda order: bool(order["state"] == OrderState.OPEN))),
        tuple(of["exchange"].rows(to.to_exchange, lambda exchange: exchange["returned_us"] is None)),
        tuple(of["exchange_surplus"].rows(to.to_surplus)),
        tuple(of["idle_cells"].rows(to.to_idle)),
    )


def find_order(memory: Memory, order_id: int) -> ExchangeOrder | None:
    """See `store.find_order`."""
    with memory.lock:
        table = memory.tables["exchange_order"]
        record = table.records.get((order_id,))
        return None if record is None else table.row(record, to.to_order)


def find_exchanges(memory: Memory, exchange_ids: Collection[int]) -> list[Exchange]:
    """See `store.find_exchanges`."""
    with memory.lock:
        table = memory.tables["exchange"]
        return table.rows(to.to_exchange, lambda x: x["id"] in exchange_ids or x["in_return_for"] in exchange_ids)


def find_posted(memory: Memory, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], ExchangeOrder]:
    """See `store.find_posted`."""
    with memory.lock:
        table = memory.tables["exchange_order"]
        made = {request: table.unique["exchange_order_request_once"].get(request) for request in requests}
        return {request: table.row(table.records[key], to.to_order) for request, key in made.items() if key is not None}


def find_accepted(memory: Memory, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Exchange]:
    """See `store.find_accepted`."""
    with memory.lock:
        table = memory.tables["exchange"]
        made = {request: table.unique["exchange_request_once"].get(request) for request in requests}
        return {request: table.row(table.records[key], to.to_exchange) for request, key in made.items() if key is not None}


def list_orders(
    memory: Memory, states: Collection[OrderState] = (), vc: int = 0, before_id: int | None = None, limit: int = 100
) -> list[ExchangeOrder]:
    """See `store.list_orders`."""

    def wanted(order: Record) -> bool:
        return (not states or order["state"] in states) and vc in (0, order["vc"]) and _before(order, before_id)

    with memory.lock:
        return memory.tables["exchange_order"].rows(to.to_order, wanted)[::-1][:limit]


def list_exchanges(
    memory: Memory, states: Collection[ExchangeState] = (), vc: int = 0, before_id: int | None = None, limit: int = 100
) -> list[Exchange]:
    """See `store.list_exchanges`."""

    def wanted(x: Record) -> bool:
        return (not states or x["state"] in states) and vc in (0, x["giver"], x["taker"]) and _before(x, before_id)

    with memory.lock:
        return memory.tables["exchange"].rows(to.to_exchange, wanted)[::-1][:limit]


def _before(record: Record, before_id: int | None) -> bool:
    return before_id is None or bool(record["id"] < before_id)


def live_of_offers(memory: Memory, offers: Collection[int]) -> list[Exchange]:
    """See `store.live_of_offers`."""
    with memory.lock:
        return [x for x in live_market(memory).exchanges if x.offer in offers]


def list_ledger(memory: Memory, vc: int = 0, before_exchange: int | None = None, limit: int = 100) -> list[LedgerEntry]:
    """See `store.list_ledger`."""
    with memory.lock:
        entries = memory.tables["exchange_ledger"].rows(to.to_entry, lambda entry: vc in (0, entry["vc"]))
    there = {entry.exchange for entry in entries if before_exchange is None or entry.exchange < before_exchange}
    picked = sorted(there, reverse=True)[:limit]
    return sorted((e for e in entries if e.exchange in picked), key=lambda e: (-e.exchange, e.what, e.vc))


def list_surpluses(memory: Memory) -> list[Surplus]:
    """See `store.list_surpluses`."""
    with memory.lock:
        return memory.tables["exchange_surplus"].rows(to.to_surplus)


def list_vcs(memory: Memory) -> list[VirtualCluster]:
    """See `store.list_vcs`."""
    with memory.lock:
        return memory.tables["virtual_cluster"].rows(rows.to_vc)
