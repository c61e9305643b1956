"""Cell exchange between virtual clusters: what is offered and requested, what was agreed, and what it was booked with.

Surplus, prices and bids are device-microseconds, whole numbers; 3,600,000,000 of them are a GPU-hour.
"""

from dataclasses import dataclass
from datetime import datetime

from client_sdk._values.enums import BookingKind, ExchangeState, PostingKind, PostingState

GPU_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class CellLot:
    """Cells that are alike, for a window of time, such as `CellLot("a100", "node", 2, begin, end)`."""

    pool: str
    level: str
    cells: int
    begin: datetime | None = None
    """None: now."""
    end: datetime | None = None
    device_us: int = 0
    """What they come to; told by the scheduler."""

    @property
    def gpu_hours(self) -> float:
        return self.device_us / GPU_HOUR_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """An offer, or a request, on the bulletin board or not any more."""

    id: int
    kind: PostingKind
    virtual_cluster: str
    lot: CellLot
    bid_device_us: int | None = None
    """What a request pays at most, and an offer wants at least, for the whole lot. None: as much as the lot has."""
    swap: CellLot | None = None
    """Cells in return: what an offer wants, what a request gives. None: surplus alone."""
    state: PostingState = PostingState.OPEN
    left: int = 0
    """Of an open one: cells of it that nobody has at any time of the rest of its window."""
    post_time: datetime | None = None
    expire_time: datetime | None = None
    """When it leaves the board."""
    by_proxy: bool = False
    """Posted by its virtual cluster's proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellExchange:
    """Cells of one virtual cluster that another has for a window. A swap is two of them."""

    id: int
    offer_posting_id: int | None
    """The offer that it came of; None where a request was met by its giver."""
    request_posting_id: int | None
    """The request that it came of; None where an offer was taken by its taker."""
    giver: str
    """Empty: a virtual cluster that was deleted since."""
    taker: str
    lot: CellLot
    price_device_us: int = 0
    state: ExchangeState = ExchangeState.MATCHED
    agree_time: datetime | None = None
    open_time: datetime | None = None
    return_time: datetime | None = None
    in_return_for: int | None = None
    """The exchange whose taker gives these cells for it."""
    return_asked_by: str = ""
    """The side that would end it early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One side of what was booked for an exchange."""

    virtual_cluster: str
    """Empty: one that was deleted since."""
    exchange_id: int
    kind: BookingKind
    device_us: int
    """Positive: the virtual cluster is credited."""
    time: datetime | None = None

    @property
    def gpu_hours(self) -> float:
        return self.device_us / GPU_HOUR_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Surplus:
    """What a virtual cluster has given less what it has taken."""

    virtual_cluster: str
    """Empty: one that was deleted since; others are owed the same."""
    device_us: int

    @property
    def gpu_hours(self) -> float:
        return self.device_us / GPU_HOUR_US
