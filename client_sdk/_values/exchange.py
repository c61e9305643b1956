"""Cell exchange between virtual clusters: offers and requests, agreed exchanges, and the ledger.

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
    """Their size in device-microseconds; set by the scheduler."""

    @property
    def gpu_hours(self) -> float:
        return self.device_us / GPU_HOUR_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """An offer or a request that is or was on the bulletin board."""

    id: int
    kind: PostingKind
    virtual_cluster: str
    lot: CellLot
    bid_device_us: int | None = None
    """The most that a request pays, or the least that an offer asks, for the whole lot. None: as much as the lot has."""
    swap: CellLot | None = None
    """The cells that an offer asks, or a request gives, in return. None: only surplus is exchanged."""
    state: PostingState = PostingState.OPEN
    left: int = 0
    """For an open posting: its cells that remain available for the rest of its window."""
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
    """The offer that led to it; None if the giver fulfilled a request."""
    request_posting_id: int | None
    """The request that led to it; None if the taker accepted an offer."""
    giver: str
    """Empty if this virtual cluster has been deleted."""
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
    """The virtual cluster that asks to end it early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One side of a booking for an exchange."""

    virtual_cluster: str
    """Empty if it has been deleted."""
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
    """The device time that a virtual cluster has given to others, less the device time that it has taken."""

    virtual_cluster: str
    """Empty for deleted virtual clusters, whose surplus the others still owe."""
    device_us: int

    @property
    def gpu_hours(self) -> float:
        return self.device_us / GPU_HOUR_US
