"""How offers, requests and exchanges change as they are posted, withdrawn, opened and ended, and what is booked for it."""

from typing import NamedTuple

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.exchange.quota_timeline import is_empty
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.exchange import (
    Booking,
    Exchange,
    ExchangeState,
    LedgerEntry,
    Posting,
    PostingState,
    exchange_due,
)
from scheduler_service.core.model.values import Micros

LATE_US: Micros = 60_000_000
"""A window opened later than this after its begin could not be used until then: no scheduler was there to open it."""


class Booked(NamedTuple):
    """An exchange as it is now, and what is written into the ledger for it."""

    exchange: Exchange
    entries: tuple[LedgerEntry, ...] = ()


# ---- offers and requests -----------------------------------------------------------------------------------------------


def prepare_posting(posting: Posting) -> Posting:
    """The posting as it is put on the board; raises FailedPrecondition for one that could never be met.

    It leaves the board at the end of its window at the latest, and a swap when the first of its windows begins: cells that were
    weighed against cells are exchanged for the whole of both windows.
    """
    lots = (posting.lot,) if posting.swap is None else (posting.lot, posting.swap)
    leaves = posting.lot.end_us if posting.swap is None else min(lot.begin_us for lot in lots)
    expires = min(posting.expires_us, leaves)
    if any(is_empty(lot) for lot in lots):
        raise FailedPrecondition("EMPTY_LOT", "there are no cells in it, or no time")
    if posting.lot.end_us <= posting.posted_us or expires < posting.posted_us:
        raise FailedPrecondition("WINDOW_OVER", "its window, or the time for which it is to stand, is over already")
    if posting.bid is not None and posting.bid < 0:
        raise FailedPrecondition("NEGATIVE_BID", "a bid is an amount of surplus, and not less than nothing")
    if posting.bid is not None and posting.swap is not None:
        raise FailedPrecondition("BID_FOR_SWAP", "what is swapped for cells has no other price")
    begins = posting.lot.begin_us if posting.lot.begin_us > posting.posted_us else None
    return with_changes(posting, expires_us=expires, begins_us=begins)


def withdraw_posting(posting: Posting) -> Posting:
    """Withdraws a posting. What was agreed on from it stays agreed."""
    if posting.state not in (PostingState.OPEN, PostingState.WITHDRAWN):
        raise FailedPrecondition("WRONG_STATE", f"posting {posting.id} is {posting.state.name} and cannot be withdrawn")
    return with_changes(posting, state=PostingState.WITHDRAWN)


def expire_if_due(posting: Posting, now: Micros) -> Posting:
    """The posting, expired if its deadline has passed."""
    over = posting.state is PostingState.OPEN and posting.expires_us <= now
    return with_changes(posting, state=PostingState.EXPIRED) if over else posting


# ---- exchanges ---------------------------------------------------------------------------------------------------------


def advance_exchange(exchange: Exchange, now: Micros) -> Booked:
    """The exchange as it is now: opened, closed, or as it was. The part of a window in which no scheduler could open it was
    never given, and is not paid for."""
    due = exchange_due(exchange)
    if due is None or now < due:
        return Booked(exchange)
    if exchange.state is ExchangeState.ACTIVE:
        return _end_exchange(exchange, now, 0)
    if exchange.lot.end_us <= now:
        return called_off(exchange, now)
    return Booked(with_changes(exchange, state=ExchangeState.ACTIVE, opened_us=now))


def called_off(exchange: Exchange, now: Micros) -> Booked:
    """Ends an exchange before its time, begun or not. The part of the price for the rest of the window goes back."""
    if exchange.state is ExchangeState.RETURNED:
        return Booked(exchange)
    lot = exchange.lot
    if exchange.opened_us is None:
        return _end_exchange(exchange, now, lot.end_us - lot.begin_us)
    return _end_exchange(exchange, now, max(lot.end_us - max(now, lot.begin_us), 0))


def _end_exchange(exchange: Exchange, now: Micros, rest_us: Micros) -> Booked:
    """Ends an exchange. Pays back the price of the rest of the window, and of what had passed before it was opened."""
    begin, opened = exchange.lot.begin_us, exchange.opened_us
    missed = 0 if opened is None or opened - begin <= LATE_US else opened - begin
    back = exchange.price * (missed + rest_us) // (exchange.lot.end_us - begin)
    over = with_changes(exchange, state=ExchangeState.RETURNED, returned_us=now)
    return Booked(over, ledger_entries(exchange, Booking.RETURNED, -back, now))


def return_asked(exchange: Exchange, vc: int, now: Micros) -> Booked:
    """Takes the wish of one side to end it early; it ends when both have asked."""
    if vc not in (exchange.giver, exchange.taker):
        raise FailedPrecondition("NOT_YOURS", f"exchange {exchange.id} is between others")
    if exchange.return_asked_by in (0, vc) or exchange.state is ExchangeState.RETURNED:
        return Booked(with_changes(exchange, return_asked_by=exchange.return_asked_by or vc))
    return called_off(exchange, now)


def ledger_entries(exchange: Exchange, what: Booking, device_us: int, now: Micros) -> tuple[LedgerEntry, ...]:
    """The ledger entries that credit the giver with an amount, and debit the taker with the same."""
    sides = ((exchange.giver, device_us), (exchange.taker, -device_us))
    return tuple(LedgerEntry(vc, exchange.id, what, amount, now) for vc, amount in sides if amount)
