"""Requests about cell exchange, as `jobs` has those about jobs and nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from client_sdk import units
from client_sdk._requests.jobs import Request, new_id
from client_sdk._values.exchange import GPU_HOUR_US
from client_sdk._values.job_options import Moment, Time
from client_sdk.errors import InvalidArgument
from client_sdk.models import CellExchange, CellLot, ExchangeState, LedgerEntry, Posting, PostingKind, PostingState, Surplus

R = TypeVar("R")

PAGE = 500
MOST_GPU_HOURS = 10**18 // GPU_HOUR_US


@dataclass(frozen=True, slots=True)
class Post(Request[Posting]):
    virtual_cluster: str
    kind: PostingKind
    lot: CellLot
    bid_device_us: int | None
    swap: CellLot | None
    expires: datetime | None
    request_id: str


@dataclass(frozen=True, slots=True)
class Withdraw(Request[Posting]):
    posting_id: int
    virtual_cluster: str


@dataclass(frozen=True, slots=True)
class Accept(Request[Sequence[CellExchange]]):
    posting_id: int
    virtual_cluster: str
    cells: int
    begin: datetime | None
    end: datetime | None
    request_id: str


@dataclass(frozen=True, slots=True)
class ReturnCells(Request[CellExchange]):
    exchange_id: int
    virtual_cluster: str


@dataclass(frozen=True, slots=True)
class Part(Generic[R]):
    """A page."""

    items: tuple[R, ...]
    next_token: str
    """Empty on the last one."""


@dataclass(frozen=True, slots=True)
class PostingsPage(Request[Part[Posting]]):
    virtual_cluster: str
    states: tuple[PostingState, ...]
    token: str = ""


@dataclass(frozen=True, slots=True)
class ExchangesPage(Request[Part[CellExchange]]):
    virtual_cluster: str
    states: tuple[ExchangeState, ...]
    token: str = ""


@dataclass(frozen=True, slots=True)
class LedgerPage(Request[Part[LedgerEntry]]):
    virtual_cluster: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class GetSurpluses(Request[Sequence[Surplus]]):
    virtual_cluster: str


def post(
    virtual_cluster: str,
    kind: PostingKind,
    lot: CellLot,
    gpu_hours: float | None,
    swap: CellLot | None,
    expires: Moment | None,
    request_id: str | None,
) -> Post:
    """A post that may be sent again: where it was given no request_id, it has one of its own."""
    if gpu_hours is not None and not 0 <= gpu_hours <= MOST_GPU_HOURS:
        raise InvalidArgument(f"{gpu_hours} is not an amount of GPU-hours, from 0 to {MOST_GPU_HOURS:,}")
    bid = None if gpu_hours is None else round(gpu_hours * GPU_HOUR_US)
    leaves = _moment("expires", expires, datetime.now(UTC))
    return Post(virtual_cluster, kind, lot, bid, swap, leaves, request_id or new_id())


def accept(
    posting: Posting | int,
    virtual_cluster: str,
    cells: int,
    begin: Moment | None,
    end: Moment | None,
    request_id: str | None,
) -> Accept:
    now = datetime.now(UTC)
    window = _begin(begin, now), _moment("end", end, now)
    return Accept(_id(posting), virtual_cluster, cells, *window, request_id or new_id())


def withdraw(posting: Posting | int, virtual_cluster: str) -> Withdraw:
    return Withdraw(_id(posting), virtual_cluster)


def give_back(exchange: CellExchange | int, virtual_cluster: str) -> ReturnCells:
    return ReturnCells(_id(exchange), virtual_cluster)


def _id(of: Posting | CellExchange | int) -> int:
    return of if isinstance(of, int) else of.id


def lot(pool: str, level: str, cells: int, begin: Moment | None, end: Moment | None, duration: Time | None) -> CellLot:
    """A lot whose end is said, or how long it lasts. Raises InvalidArgument."""
    if (end is None) == (duration is None):
        raise InvalidArgument("say when the window ends: either `end`, or how long it lasts in `duration`")
    now = datetime.now(UTC)
    begins, ends = _begin(begin, now), _moment("end", end, now)
    if duration is not None:
        ends = units.after(begins or now, units.parse_duration(duration))
    return CellLot(pool, level, cells, begins, ends)


def _begin(value: Moment | None, now: datetime) -> datetime | None:
    """As `begin_of`; None: now."""
    try:
        return None if value is None else begin_of(value, now)
    except InvalidArgument as error:
        raise InvalidArgument(f"begin: {error}") from error


def _moment(what: str, value: Moment | None, now: datetime) -> datetime | None:
    try:
        return None if value is None else units.parse_time(value, now)
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}") from error


def begin_of(value: Moment, now: datetime) -> datetime:
    """When a window begins. In so many minutes means with the minute: an offer and a request that say the same within one have
    the same window."""
    found, minute = units.parse_time(value, now), timedelta(minutes=1)
    counted = isinstance(value, str) and value.strip().startswith("+")
    if counted and found - now >= minute and not (found - now) % minute:
        return found.replace(second=0, microsecond=0)
    return found
