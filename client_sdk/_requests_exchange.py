"""Requests about cell exchange, as `_requests` has those about jobs and nodes."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from client_sdk import units
from client_sdk._market import GPU_HOUR_US
from client_sdk._options import Time
from client_sdk._requests import Request
from client_sdk.errors import InvalidArgument
from client_sdk.models import CellExchange, CellLot, ExchangeOrder, ExchangeState, LedgerEntry, OrderKind, OrderState, Surplus

R = TypeVar("R")

PAGE = 500
MOST_GPU_HOURS = 10**18 // GPU_HOUR_US


@dataclass(frozen=True, slots=True)
class PostOrder(Request[ExchangeOrder]):
    virtual_cluster: str
    kind: OrderKind
    lot: CellLot
    bid_device_us: int | None
    swap: CellLot | None
    expires: datetime | None
    request_id: str


@dataclass(frozen=True, slots=True)
class WithdrawOrder(Request[ExchangeOrder]):
    order_id: int
    virtual_cluster: str


@dataclass(frozen=True, slots=True)
class AcceptOrder(Request[Sequence[CellExchange]]):
    order_id: int
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
class OrdersPage(Request[Part[ExchangeOrder]]):
    virtual_cluster: str
    states: tuple[OrderState, ...]
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
    kind: OrderKind,
    lot: CellLot,
    gpu_hours: float | None,
    swap: CellLot | None,
    expires: datetime | None,
    request_id: str | None,
) -> PostOrder:
    """A post that may be sent again: where it was given no request_id, it has one of its own."""
    if gpu_hours is not None and not 0 <= gpu_hours <= MOST_GPU_HOURS:
        raise InvalidArgument(f"{gpu_hours} is not an amount of GPU-hours, from 0 to {MOST_GPU_HOURS:,}")
    bid = None if gpu_hours is None else round(gpu_hours * GPU_HOUR_US)
    return PostOrder(virtual_cluster, kind, lot, bid, swap, expires, request_id or str(uuid.uuid4()))


def accept(
    order: ExchangeOrder | int,
    virtual_cluster: str,
    cells: int,
    begin: datetime | None,
    end: datetime | None,
    request_id: str | None,
) -> AcceptOrder:
    return AcceptOrder(_id(order), virtual_cluster, cells, begin, end, request_id or str(uuid.uuid4()))


def withdraw(order: ExchangeOrder | int, virtual_cluster: str) -> WithdrawOrder:
    return WithdrawOrder(_id(order), virtual_cluster)


def give_back(exchange: CellExchange | int, virtual_cluster: str) -> ReturnCells:
    return ReturnCells(_id(exchange), virtual_cluster)


def _id(of: ExchangeOrder | CellExchange | int) -> int:
    return of if isinstance(of, int) else of.id


def lot(pool: str, level: str, cells: int, begin: datetime | None, end: datetime | None, duration: Time | None) -> CellLot:
    """A lot whose end is said, or how long it lasts. Raises InvalidArgument."""
    if (end is None) == (duration is None):
        raise InvalidArgument("say when the window ends: either `end`, or how long it lasts in `duration`")
    if end is None and duration is not None:
        end = (begin or datetime.now(UTC)) + units.parse_duration(duration)
    return CellLot(pool, level, cells, begin, end)
