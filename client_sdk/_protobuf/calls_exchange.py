"""Requests about cell exchange as they are sent, and how their answers are read; see `calls`."""

from datetime import datetime
from typing import Any

from ebb.v1 import exchange_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp

from client_sdk import models
from client_sdk._protobuf.call import Call, why_not
from client_sdk._protobuf.reading import read
from client_sdk._requests.exchange import (
    PAGE,
    Accept,
    ExchangesPage,
    GetSurpluses,
    LedgerPage,
    Part,
    Post,
    PostingsPage,
    ReturnCells,
    Withdraw,
)
from client_sdk._requests.jobs import Request
from client_sdk.errors import InvalidArgument


def encode(request: Request[Any]) -> Call[Any] | None:
    """None: it is about something else. Raises InvalidArgument for what no message can hold."""
    try:
        match request:
            case Post():
                return _call("Post", _post(request), pb.PostResponse, lambda a: _posting(a.posting))
            case Withdraw(posting_id, vc):
                asked = pb.WithdrawRequest(posting_id=posting_id, virtual_cluster=vc)
                return _call("Withdraw", asked, pb.WithdrawResponse, lambda a: _posting(a.posting))
            case Accept():
                return _call("Accept", _accept(request), pb.AcceptResponse, lambda a: list(map(_exchange, a.exchanges)))
            case ReturnCells(exchange_id, vc):
                back = pb.ReturnCellsRequest(exchange_id=exchange_id, virtual_cluster=vc)
                return _call("ReturnCells", back, pb.ReturnCellsResponse, lambda a: _exchange(a.exchange))
            case PostingsPage(vc, states, token):
                of = [int(state) for state in states]
                listed = pb.ListPostingsRequest(page_size=PAGE, page_token=token, virtual_cluster=vc, states=of)  # type: ignore[arg-type]
                return _call("ListPostings", listed, pb.ListPostingsResponse, _postings)
            case ExchangesPage(vc, states, token):
                of = [int(state) for state in states]
                found = pb.ListExchangesRequest(page_size=PAGE, page_token=token, virtual_cluster=vc, states=of)  # type: ignore[arg-type]
                return _call("ListExchanges", found, pb.ListExchangesResponse, _exchanges)
            case LedgerPage(vc, token):
                page = pb.GetLedgerRequest(page_size=PAGE, page_token=token, virtual_cluster=vc)
                return _call("GetLedger", page, pb.GetLedgerResponse, _entries)
            case GetSurpluses(vc):
                first = pb.GetLedgerRequest(page_size=1, virtual_cluster=vc)
                return _call("GetLedger", first, pb.GetLedgerResponse, lambda a: list(map(_surplus, a.surpluses)))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"what is said of the exchange cannot be sent: {why_not(error)}") from error
    return None


def _call(name: str, *rest: Any) -> Call[Any]:
    return Call(f"Exchange/{name}", *rest)


# ---- out ---------------------------------------------------------------------------------------------------------------


def _post(request: Post) -> pb.PostRequest:
    return pb.PostRequest(
        virtual_cluster=request.virtual_cluster,
        request_id=request.request_id,
        kind=int(request.kind),  # type: ignore[arg-type]
        lot=_lot_message(request.lot),
        bid_device_us=request.bid_device_us,
        swap=None if request.swap is None else _lot_message(request.swap),
        expire_time=_timestamp(request.expires),
    )


def _accept(request: Accept) -> pb.AcceptRequest:
    return pb.AcceptRequest(
        virtual_cluster=request.virtual_cluster,
        request_id=request.request_id,
        posting_id=request.posting_id,
        cells=request.cells,
        begin_time=_timestamp(request.begin),
        end_time=_timestamp(request.end),
    )


def _lot_message(lot: models.CellLot) -> pb.CellLot:
    begin, end = _timestamp(lot.begin), _timestamp(lot.end)
    return pb.CellLot(pool=lot.pool, level=lot.level, cells=lot.cells, begin_time=begin, end_time=end)


def _timestamp(at: datetime | None) -> Timestamp | None:
    if at is None:
        return None
    if not isinstance(at, datetime):  # of a CellLot that a user made
        raise ValueError(f"{at!r} is not a datetime; a CellLot has datetimes with a time zone")
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone; give it one, such as datetime.UTC")
    found = Timestamp()
    found.FromDatetime(at)
    return found


# ---- in ----------------------------------------------------------------------------------------------------------------


def _postings(answer: pb.ListPostingsResponse) -> Part[models.Posting]:
    return Part(tuple(map(_posting, answer.postings)), answer.next_page_token)


def _exchanges(answer: pb.ListExchangesResponse) -> Part[models.CellExchange]:
    return Part(tuple(map(_exchange, answer.exchanges)), answer.next_page_token)


def _entries(answer: pb.GetLedgerResponse) -> Part[models.LedgerEntry]:
    return Part(tuple(map(_entry, answer.entries)), answer.next_page_token)


def _posting(message: pb.Posting) -> models.Posting:
    return read(models.Posting, message, id=message.posting_id)


def _exchange(message: pb.CellExchange) -> models.CellExchange:
    return read(models.CellExchange, message, id=message.exchange_id)


def _entry(message: pb.LedgerEntry) -> models.LedgerEntry:
    return read(models.LedgerEntry, message)


def _surplus(message: pb.Surplus) -> models.Surplus:
    return read(models.Surplus, message)
