"""Cell exchange between virtual clusters (HiveD, section 3.3): its rows, and what follows from them.

A VC offers cells for a window of time, or requests some; a deal makes an exchange, which for its window takes the cells off
the giver's quota and adds them to the taker's. What a VC has given less what it has taken is its surplus, in device-
microseconds: the GPU-hours of the paper without fractions, so that what one side is credited the other is debited to the unit.
"""

from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from itertools import accumulate
from typing import NamedTuple

from scheduler_service.core.errors import FailedPrecondition
from scheduler_service.core.model.rows import changed, dataclass
from scheduler_service.core.model.values import Micros

LATE_US: Micros = 60_000_000
"""A window that is opened so much after it has begun was not to be had in that time: nobody was there to open it."""

# ---- rows --------------------------------------------------------------------------------------------------------------


Kind = tuple[int, str, str]
"""A virtual cluster, a pool and a level: its cells of a kind."""


@dataclass(frozen=True)
class Lot:
    """Cells that are alike, for a window of time, its end not included.

    >>> Lot("v100", "node", 2, 0, 3_600_000_000, devices=8).device_us // 3_600_000_000  # GPU-hours
    16
    """

    pool: str
    level: str
    count: int
    begin_us: Micros
    end_us: Micros
    devices: int
    """Of one such cell: a fact of the pool, kept here so that rows can be added up without it."""

    @property
    def device_us(self) -> int:
        return self.count * self.devices * (self.end_us - self.begin_us)


class PostingKind(IntEnum):
    OFFER = 1
    REQUEST = 2


class PostingState(IntEnum):
    OPEN = 1
    MATCHED = 2
    """A request that got its cells, or an offer that was swapped. Any other offer stands until its window is over; what is left
    of it is what no exchange has."""
    WITHDRAWN = 3
    EXPIRED = 4


class ExchangeState(IntEnum):
    MATCHED = 1
    """Agreed; its window has not begun."""
    ACTIVE = 2
    RETURNED = 3
    """Over: the cells are the giver's again."""


class Booking(IntEnum):
    AGREED = 1
    RETURNED = 2
    """The part of the price for which there was nothing any more."""


@dataclass(frozen=True)
class Posting:
    """What stands on the bulletin board: an offer or a request."""

    id: int
    kind: PostingKind
    vc: int
    lot: Lot
    posted_us: Micros
    expires_us: Micros
    """When it leaves the board."""
    bid: int | None = None
    """Device-microseconds of surplus for the whole lot: what a request pays at most, and an offer wants at least. None: as many
    as the lot has."""
    swap: Lot | None = None
    """Cells of another kind or window, in return: what an offer wants, what a request gives. None: surplus alone."""
    state: PostingState = PostingState.OPEN
    by_proxy: bool = False
    """Posted for the tenant by its proxy, which may take it back."""
    begins_us: Micros | None = None
    """When its window begins; None: it has begun. More may fit the rest of a window than the whole, so the board is looked at
    again then."""
    request_id: str = ""
    """Given by the client, so that what is sent twice is posted once."""


@dataclass(frozen=True)
class Exchange:
    """Cells of one VC that another has for a window. A swap is two of them."""

    id: int
    offer: int
    """The posting, or 0."""
    request: int
    giver: int
    taker: int
    lot: Lot
    price: int
    """Device-microseconds of surplus."""
    agreed_us: Micros
    in_return_for: int = 0
    """The exchange whose taker gives these cells for it, or 0."""
    state: ExchangeState = ExchangeState.MATCHED
    return_asked_by: int = 0
    """The side that would end it early, or 0."""
    opened_us: Micros | None = None
    returned_us: Micros | None = None
    request_id: str = ""
    """Of the tenant that accepted a posting of another."""


@dataclass(frozen=True)
class LedgerEntry:
    """One side of what was booked; (vc, exchange, what) names it."""

    vc: int
    exchange: int
    what: Booking
    device_us: int
    """Positive: the VC is credited."""
    at_us: Micros


@dataclass(frozen=True)
class Surplus:
    """What a virtual cluster has given less what it has taken: the sum of its ledger, which is not kept in memory. It outlives
    the virtual cluster, as others are owed the same."""

    vc: int
    device_us: int
    """Device-microseconds; negative: it owes them."""


class Deal(NamedTuple):
    """Cells that are to change hands, for surplus or, in a swap, for other cells."""

    giver: int
    taker: int
    lot: Lot
    price: int
    offer: int = 0
    """The posting that it meets, or 0: a tenant gives what another requests without having offered it."""
    request: int = 0
    swap: Lot | None = None
    """What the taker gives."""


class Booked(NamedTuple):
    """An exchange as it is now, and what is written into the ledger for it."""

    exchange: Exchange
    entries: tuple[LedgerEntry, ...] = ()


# ---- windows -----------------------------------------------------------------------------------------------------------


def covers(whole: Lot, part: Lot) -> bool:
    """Whether the part can be taken out of the whole."""
    return (
        (whole.pool, whole.level) == (part.pool, part.level)
        and whole.count >= part.count
        and whole.begin_us <= part.begin_us
        and part.end_us <= whole.end_us
    )


def from_now(lot: Lot, now: Micros) -> Lot:
    """What the lot still is once its window has begun."""
    return changed(lot, begin_us=now) if lot.begin_us < now else lot


def is_empty(lot: Lot) -> bool:
    return lot.count <= 0 or lot.end_us <= lot.begin_us


def used(lots: Iterable[Lot], begin_us: Micros, end_us: Micros) -> list[int]:
    """How many cells the lots take together, from each moment on at which that changes in the window."""
    return _sums(((lot, lot.count) for lot in lots), begin_us, end_us)


def balance(exchanges: Iterable[Exchange], vc: int, begin_us: Micros, end_us: Micros) -> list[int]:
    """As `used`: what exchanges of one kind of cells add to what a virtual cluster has of it; negative where it gives more.

    This is `granted` at all `moments` of the window, in one pass over them.
    """
    there = (x for x in exchanges if x.state is not ExchangeState.RETURNED)
    return _sums(((x.lot, x.lot.count * ((x.taker == vc) - (x.giver == vc))) for x in there), begin_us, end_us)


def _sums(counts: Iterable[tuple[Lot, int]], begin_us: Micros, end_us: Micros) -> list[int]:
    change = defaultdict(int, {begin_us: 0})
    for lot, count in counts:
        if lot.begin_us < end_us and begin_us < lot.end_us:
            change[max(lot.begin_us, begin_us)] += count
            change[lot.end_us] -= count
    return list(accumulate(change[at] for at in sorted(change) if at < end_us))


def granted(exchanges: Iterable[Exchange], at_us: Micros) -> dict[tuple[int, str, str], int]:
    """What exchanges add to the quota of (VC, pool, level) at a time, now or to come; negative for givers.

    At the present time it is `in_force`, once all deadlines that have come were seen to.
    """
    there = (x for x in exchanges if x.state is not ExchangeState.RETURNED and x.lot.begin_us <= at_us < x.lot.end_us)
    return _quotas(there)


def in_force(exchanges: Iterable[Exchange]) -> dict[tuple[int, str, str], int]:
    """As `granted`, of the windows that were opened and not closed: what quotas are, whatever the clock says."""
    return _quotas(x for x in exchanges if x.state is ExchangeState.ACTIVE)


def _quotas(exchanges: Iterable[Exchange]) -> dict[tuple[int, str, str], int]:
    change: dict[tuple[int, str, str], int] = defaultdict(int)
    for exchange in exchanges:
        lot = exchange.lot
        change[exchange.taker, lot.pool, lot.level] += lot.count
        change[exchange.giver, lot.pool, lot.level] -= lot.count
    return {key: count for key, count in change.items() if count}


def moments(exchanges: Iterable[Exchange], begin_us: Micros, end_us: Micros) -> list[Micros]:
    """When `granted` may change within a window, its begin included: where a check over the window has to look."""
    times = {at for x in exchanges if x.state is not ExchangeState.RETURNED for at in (x.lot.begin_us, x.lot.end_us)}
    return [begin_us, *sorted(at for at in times if begin_us < at < end_us)]


# ---- offers and requests ----------------------------------------------------------------------------------------------


def posted(posting: Posting) -> Posting:
    """The posting as it goes on the board; raises FailedPrecondition for one that could never be met.

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
    return changed(posting, expires_us=expires, begins_us=begins)


def withdrawn(posting: Posting) -> Posting:
    """What was agreed on of it stays agreed."""
    if posting.state not in (PostingState.OPEN, PostingState.WITHDRAWN):
        raise FailedPrecondition("WRONG_STATE", f"posting {posting.id} is {posting.state.name} and cannot be withdrawn")
    return changed(posting, state=PostingState.WITHDRAWN)


def expired(posting: Posting, now: Micros) -> Posting:
    """The posting once its deadline has come; before, as it is."""
    over = posting.state is PostingState.OPEN and posting.expires_us <= now
    return changed(posting, state=PostingState.EXPIRED) if over else posting


def posting_due(posting: Posting) -> Micros | None:
    return posting.expires_us if posting.state is PostingState.OPEN else None


# ---- exchanges ---------------------------------------------------------------------------------------------------------


def exchange_due(exchange: Exchange) -> Micros | None:
    """When its window is to be opened, or closed."""
    match exchange.state:
        case ExchangeState.MATCHED:
            return exchange.lot.begin_us
        case ExchangeState.ACTIVE:
            return exchange.lot.end_us
    return None


def turned(exchange: Exchange, now: Micros) -> Booked:
    """The exchange as time has it: opened, closed, or as it was. What of a window passed while nobody could open it was never
    given, and is not paid for."""
    due = exchange_due(exchange)
    if due is None or now < due:
        return Booked(exchange)
    if exchange.state is ExchangeState.ACTIVE:
        return _over(exchange, now, 0)
    if exchange.lot.end_us <= now:
        return called_off(exchange, now)
    return Booked(changed(exchange, state=ExchangeState.ACTIVE, opened_us=now))


def called_off(exchange: Exchange, now: Micros) -> Booked:
    """Ends an exchange before its time, begun or not. The part of the price for the rest of the window goes back."""
    if exchange.state is ExchangeState.RETURNED:
        return Booked(exchange)
    lot = exchange.lot
    if exchange.opened_us is None:
        return _over(exchange, now, lot.end_us - lot.begin_us)
    return _over(exchange, now, max(lot.end_us - max(now, lot.begin_us), 0))


def _over(exchange: Exchange, now: Micros, rest_us: Micros) -> Booked:
    """What is paid back is the price of the rest of the window, and of what had passed of it before it was opened."""
    begin, opened = exchange.lot.begin_us, exchange.opened_us
    missed = 0 if opened is None or opened - begin <= LATE_US else opened - begin
    back = exchange.price * (missed + rest_us) // (exchange.lot.end_us - begin)
    over = changed(exchange, state=ExchangeState.RETURNED, returned_us=now)
    return Booked(over, booked(exchange, Booking.RETURNED, -back, now))


def return_asked(exchange: Exchange, vc: int, now: Micros) -> Booked:
    """One side would end it early; it is over when both have said so."""
    if vc not in (exchange.giver, exchange.taker):
        raise FailedPrecondition("NOT_YOURS", f"exchange {exchange.id} is between others")
    if exchange.return_asked_by in (0, vc) or exchange.state is ExchangeState.RETURNED:
        return Booked(changed(exchange, return_asked_by=exchange.return_asked_by or vc))
    return called_off(exchange, now)


def booked(exchange: Exchange, what: Booking, device_us: int, now: Micros) -> tuple[LedgerEntry, ...]:
    """The giver is credited, and the taker debited the same."""
    sides = ((exchange.giver, device_us), (exchange.taker, -device_us))
    return tuple(LedgerEntry(vc, exchange.id, what, amount, now) for vc, amount in sides if amount)
