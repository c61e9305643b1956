"""Reads of cell exchange in memory, with names, arguments and errors as in `store.reading.exchange`."""

from collections.abc import Collection

from scheduler_service.core.model.tenants.exchange import Exchange, ExchangeState, LedgerEntry, Posting, PostingState, Surplus
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.store.mapping import exchange as to
from scheduler_service.store.mapping import rows
from scheduler_service.store.mapping.records import Record
from scheduler_service.store.memory.database import Memory
from scheduler_service.store.reading.exchange import Market


def live_market(memory: Memory) -> Market:
    of = memory.tables
    return Market(
        tuple(of["exchange_posting"].rows(to.to_posting, lambda posting: bool(posting["state"] == PostingState.OPEN))),
        tuple(of["exchange"].rows(to.to_exchange, lambda exchange: exchange["returned_us"] is None)),
        tuple(of["exchange_surplus"].rows(to.to_surplus)),
        tuple(of["idle_cells"].rows(to.to_idle)),
    )


def find_posting(memory: Memory, posting_id: int) -> Posting | None:
    with memory.lock:
        return memory.tables["exchange_posting"].find((posting_id,), to.to_posting)


def find_exchanges(memory: Memory, exchange_ids: Collection[int]) -> list[Exchange]:
    with memory.lock:
        return memory.tables["exchange"].rows(
            to.to_exchange, lambda x: x["id"] in exchange_ids or x["in_return_for"] in exchange_ids
        )


def find_posted(memory: Memory, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Posting]:
    with memory.lock:
        return memory.tables["exchange_posting"].having("exchange_posting_request_once", requests, to.to_posting)


def find_accepted(memory: Memory, requests: Collection[tuple[int, str]]) -> dict[tuple[int, str], Exchange]:
    with memory.lock:
        return memory.tables["exchange"].having("exchange_request_once", requests, to.to_exchange)


def list_postings(
    memory: Memory, states: Collection[PostingState] = (), vc: int = 0, before_id: int | None = None, limit: int = 100
) -> list[Posting]:
    def is_wanted(posting: Record) -> bool:
        return (not states or posting["state"] in states) and vc in (0, posting["vc"]) and _before(posting, before_id)

    with memory.lock:
        return memory.tables["exchange_posting"].rows(to.to_posting, is_wanted)[::-1][:limit]


def list_exchanges(
    memory: Memory, states: Collection[ExchangeState] = (), vc: int = 0, before_id: int | None = None, limit: int = 100
) -> list[Exchange]:
    def is_wanted(x: Record) -> bool:
        return (not states or x["state"] in states) and vc in (0, x["giver"], x["taker"]) and _before(x, before_id)

    with memory.lock:
        return memory.tables["exchange"].rows(to.to_exchange, is_wanted)[::-1][:limit]


def _before(record: Record, before_id: int | None) -> bool:
    return before_id is None or bool(record["id"] < before_id)


def live_of_offers(memory: Memory, offers: Collection[int]) -> list[Exchange]:
    with memory.lock:
        return [x for x in live_market(memory).exchanges if x.offer in offers]


def list_ledger(memory: Memory, vc: int = 0, before_exchange: int | None = None, limit: int = 100) -> list[LedgerEntry]:
    with memory.lock:
        entries = memory.tables["exchange_ledger"].rows(to.to_entry, lambda entry: vc in (0, entry["vc"]))
    there = {entry.exchange for entry in entries if before_exchange is None or entry.exchange < before_exchange}
    picked = sorted(there, reverse=True)[:limit]
    return sorted((e for e in entries if e.exchange in picked), key=lambda e: (-e.exchange, e.what, e.vc))


def list_surpluses(memory: Memory) -> list[Surplus]:
    with memory.lock:
        return memory.tables["exchange_surplus"].rows(to.to_surplus)


def list_vcs(memory: Memory) -> list[VirtualCluster]:
    with memory.lock:
        return memory.tables["virtual_cluster"].rows(rows.to_vc)
