"""Rows of the cell exchange between virtual clusters (HiveD, section 3.3).

A VC offers cells for a window of time, or requests some; a deal makes an exchange, which for its window takes the cells off
the giver's quota and adds them to the taker's. What a VC has given less what it has taken is its surplus, in device-
microseconds: the GPU-hours of the paper without fractions, so that credits and debits are exactly equal.
"""

from enum import IntEnum
from typing import NamedTuple

from scheduler_service.core.model.rows import dataclass
from scheduler_service.core.model.values import Micros

Kind = tuple[int, str, str]
"""A virtual cluster, a pool and a level: a kind of cells of that virtual cluster."""


@dataclass(frozen=True)
class Lot:
    """Cells of one kind for a window of time, its end not included.

    >>> Lot("v100", "node", 2, 0, 3_600_000_000, devices=8).device_us // 3_600_000_000  # GPU-hours
    16
    """

    pool: str
    level: str
    count: int
    begin_us: Micros
    end_us: Micros
    devices: int
    """Devices of one such cell: a fact about the pool, kept here so that rows can be added up without it."""

    @property
    def device_us(self) -> int:
        return self.count * self.devices * (self.end_us - self.begin_us)


class PostingKind(IntEnum):
    OFFER = 1
    REQUEST = 2


class PostingState(IntEnum):
    OPEN = 1
    MATCHED = 2
    """A request that got its cells, or an offer that was swapped. Any other offer stays open until its window has ended; what
    is left of it is what no exchange has taken."""
    WITHDRAWN = 3
    EXPIRED = 4


class ExchangeState(IntEnum):
    MATCHED = 1
    """Agreed; its window has not begun."""
    ACTIVE = 2
    RETURNED = 3
    """Ended: the cells are the giver's again."""


class Booking(IntEnum):
    AGREED = 1
    RETURNED = 2
    """Refund of the price for the part of the window in which the taker did not have the cells."""


@dataclass(frozen=True)
class Posting:
    """An entry of the bulletin board: an offer or a request."""

    id: int
    kind: PostingKind
    vc: int
    lot: Lot
    posted_us: Micros
    expires_us: Micros
    """When it leaves the board."""
    bid: int | None = None
    """Device-microseconds of surplus for the whole lot: the most that a request pays, the least that an offer wants. None: as
    many as the lot has."""
    swap: Lot | None = None
    """Cells of another kind or window in return: those that an offer wants, or a request gives. None: only surplus."""
    state: PostingState = PostingState.OPEN
    by_proxy: bool = False
    """Posted for the tenant by its proxy, which may take it back."""
    begins_us: Micros | None = None
    """When its window begins; None: it has begun. More may fit the rest of a window than the whole, so the board is matched
    again then."""
    request_id: str = ""
    """Idempotency key from the client: a repeated request posts only once."""


@dataclass(frozen=True)
class Exchange:
    """Cells of one VC that another has for a window. A swap consists of two exchanges."""

    id: int
    offer: int
    """The offer that was matched, or 0."""
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
    """The side that has asked to end it early, or 0."""
    opened_us: Micros | None = None
    returned_us: Micros | None = None
    request_id: str = ""
    """Idempotency key of the tenant that accepted another's posting."""


@dataclass(frozen=True)
class LedgerEntry:
    """One side of a booking, identified by (vc, exchange, what)."""

    vc: int
    exchange: int
    what: Booking
    device_us: int
    """Positive: the VC is credited."""
    at_us: Micros


@dataclass(frozen=True)
class Surplus:
    """Balance of a virtual cluster: what it has given less what it has taken. It is the sum of its ledger, which is not kept in
    memory, and outlives the virtual cluster, because others are owed the same amount."""

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
    """The offer that it matches, or 0 if a tenant gives what another requests without having offered it."""
    request: int = 0
    swap: Lot | None = None
    """Cells that the taker gives."""


def posting_due(posting: Posting) -> Micros | None:
    return posting.expires_us if posting.state is PostingState.OPEN else None


def exchange_due(exchange: Exchange) -> Micros | None:
    """Return when the exchange's window is to be opened or closed; None: it has ended."""
    match exchange.state:
        case ExchangeState.MATCHED:
            return exchange.lot.begin_us
        case ExchangeState.ACTIVE:
            return exchange.lot.end_us
    return None
