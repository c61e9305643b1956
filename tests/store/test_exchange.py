"""Cell exchange in the store: what is over is read back, a request_id makes one thing, and constraints carry the rules."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler_service import store
from scheduler_service.core.model.tenants.exchange import Booking, ExchangeState, LedgerEntry, Lot, PostingState, Surplus
from scheduler_service.core.model.tenants.idle_history import IdleCells
from tests.store import make
from tests.store.contract import Db
from tests.store.make import EXCHANGE, LOT, OFFER, REQUEST, T

OVER = {"state": ExchangeState.RETURNED, "returned_us": T + 9}


def booked(exchange: int, amount: int, what: Booking = Booking.AGREED) -> list[LedgerEntry]:
    return [LedgerEntry(1, exchange, what, amount, T), LedgerEntry(2, exchange, what, -amount, T)]


def test_what_is_over_leaves_memory_and_is_found(db: Db, epoch: int) -> None:
    swapped = replace(EXCHANGE, id=2, offer=0, request=0, giver=2, taker=1, in_return_for=1)
    db.commit(epoch, make.new(OFFER, REQUEST, EXCHANGE, swapped, *booked(1, 7)), [])
    assert db.load().market == store.Market((OFFER,), (EXCHANGE, swapped))
    over = [make.changed(EXCHANGE, **OVER), make.changed(OFFER, state=PostingState.WITHDRAWN)]
    db.commit(epoch, [*over, *make.new(*booked(1, -3, Booking.RETURNED), Surplus(1, 4), Surplus(2, -4))], [])
    assert db.load().market == store.Market((), (swapped,), (Surplus(1, 4), Surplus(2, -4)))
    assert db.find_posting(1) == replace(OFFER, state=PostingState.WITHDRAWN)
    assert db.find_posting(9) is None
    assert db.find_exchanges([1]) == [replace(EXCHANGE, **OVER), swapped], "with what is given in return"
    assert db.find_exchanges([2]) == [swapped]
    assert db.list_ledger() == [*booked(1, 7), *booked(1, -3, Booking.RETURNED)]
    assert db.list_ledger(2) == [booked(1, 7)[1], booked(1, -3, Booking.RETURNED)[1]]
    assert db.list_surpluses() == [Surplus(1, 4), Surplus(2, -4)]


def test_postings_and_exchanges_are_listed_newest_first_by_pages(db: Db, epoch: int) -> None:
    postings = [replace(OFFER, id=n, vc=1 + n % 2, request_id="", state=PostingState(1 + n % 3)) for n in range(1, 7)]
    exchanges = [replace(EXCHANGE, id=n, request=2, **(OVER if n % 2 else {})) for n in range(1, 5)]
    exchanges.append(replace(EXCHANGE, id=5, giver=3, taker=4))
    db.commit(epoch, make.new(*postings, *exchanges, *booked(1, 1), *booked(2, 1), *booked(4, 1)), [])
    assert [o.id for o in db.list_postings(limit=2)] == [6, 5]
    assert [o.id for o in db.list_postings(before_id=5, limit=2)] == [4, 3]
    assert [o.id for o in db.list_postings((PostingState.OPEN,))] == [6, 3]
    assert [o.id for o in db.list_postings(vc=2)] == [5, 3, 1]
    assert [x.id for x in db.list_exchanges((ExchangeState.MATCHED,))] == [5, 4, 2]
    assert [x.id for x in db.list_exchanges(vc=2, before_id=4)] == [3, 2, 1]
    assert [x.id for x in db.live_of_offers([1])] == [2, 4, 5]
    assert db.live_of_offers([]) == db.live_of_offers([6]) == []
    assert [e.exchange for e in db.list_ledger(limit=2)] == [4, 4, 2, 2]
    assert [e.exchange for e in db.list_ledger(vc=1, before_exchange=4)] == [2, 1]


def test_a_request_id_makes_one_posting_and_one_exchange(db: Db, epoch: int) -> None:
    accepted = replace(EXCHANGE, request=0, request_id="take 1")
    given = replace(EXCHANGE, id=2, offer=0, request_id="take 1")
    db.commit(epoch, make.new(OFFER, REQUEST, accepted, given), [])
    over = [make.changed(accepted, **OVER), make.changed(OFFER, state=PostingState.EXPIRED)]
    db.commit(epoch, over, [])
    assert db.find_posted([(1, "post 1"), (2, "post 1"), (3, "post 1"), (1, "")]) == {
        (1, "post 1"): replace(OFFER, state=PostingState.EXPIRED),
        (2, "post 1"): REQUEST,
    }
    assert db.find_accepted([(2, "take 1"), (1, "take 1"), (1, ""), (2, "x")]) == {
        (2, "take 1"): replace(accepted, **OVER),
        (1, "take 1"): given,
    }
    assert db.find_posted([]) == db.find_accepted([(1, "")]) == {}
    for again in (replace(OFFER, id=9), replace(accepted, id=9), replace(given, id=9, giver=1, taker=3)):
        with pytest.raises(store.DuplicateRequest):
            db.commit(epoch, make.new(again), [])
    db.commit(epoch, make.new(*(replace(OFFER, id=n, request_id="") for n in (10, 11))), [])


@pytest.mark.parametrize(
    ("row", "constraint"),
    [
        (replace(OFFER, lot=replace(LOT, count=0)), "exchange_posting_lot_not_empty"),
        (replace(OFFER, lot=replace(LOT, end_us=T)), "exchange_posting_lot_not_empty"),
        (replace(OFFER, expires_us=LOT.end_us + 1), "exchange_posting_stands_for_a_time"),
        (replace(OFFER, bid=-1), "exchange_posting_bid_not_negative"),
        (replace(OFFER, bid=1, swap=LOT), "exchange_posting_swap_has_no_price"),
        (replace(EXCHANGE, taker=1), "exchange_between_two"),
        (replace(EXCHANGE, return_asked_by=3), "exchange_sides_act"),
        (replace(EXCHANGE, offer=0, request=0), "exchange_meets_something"),
        (replace(EXCHANGE, offer=7), "exchange_offer_exists"),
        (replace(EXCHANGE, in_return_for=7), "exchange_in_return_exists"),
        (replace(EXCHANGE, price=-1), "exchange_price_not_negative"),
        (replace(EXCHANGE, state=ExchangeState.ACTIVE), "exchange_active_was_opened"),
        (replace(EXCHANGE, state=ExchangeState.RETURNED), "exchange_returned_has_time"),
        (LedgerEntry(1, 9, Booking.AGREED, 5, T), "exchange_ledger_exchange_exists"),
        (LedgerEntry(1, 1, Booking.AGREED, 0, T), "exchange_ledger_books_something"),
        (IdleCells(9, "a", "b"), "idle_cells_vc_exists"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rules(db: Db, epoch: int, row: Any, constraint: str) -> None:
    number = db.commit(epoch, make.new(OFFER, REQUEST, replace(EXCHANGE, id=1)), [])
    if not isinstance(row, LedgerEntry | IdleCells):
        row = replace(row, id=5, request_id="")
    with pytest.raises(store.Rejected) as refused:
        db.commit(epoch, make.new(row), [])
    assert refused.value.constraint == constraint
    assert db.load().commit_no == number


def test_booked_twice_is_refused(db: Db, epoch: int) -> None:
    db.commit(epoch, make.new(OFFER, REQUEST, EXCHANGE, *booked(1, 5)), [])
    with pytest.raises(store.Rejected) as refused:
        db.commit(epoch, make.new(booked(1, 6)[0]), [])
    assert refused.value.constraint == "exchange_ledger_pkey"


def test_amounts_are_not_bounded_by_64_bits(db: Db, epoch: int) -> None:
    much = 2**70
    swap = Lot("b100", "device", 3, T, T + 1, 1)
    offer = replace(OFFER, swap=swap)
    db.commit(epoch, make.new(offer, REQUEST, replace(EXCHANGE, price=much), Surplus(1, -much), *booked(1, much)), [])
    market = db.load().market
    assert (market.postings[0].swap, market.exchanges[0].price, market.surpluses) == (swap, much, (Surplus(1, -much),))
    assert [type(entry.device_us) for entry in db.list_ledger()] == [int, int]
