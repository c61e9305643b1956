"""Offers, requests, exchanges and the ledger, between the core and ebb.v1."""

from collections.abc import Iterable, Mapping

from ebb.v1 import exchange_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp

from scheduler_service.core.exchange.book import Board
from scheduler_service.core.messages import AcceptRequested, Cells, PostRequested
from scheduler_service.core.model.tenants.exchange import (
    Exchange,
    LedgerEntry,
    Lot,
    Posting,
    PostingKind,
    PostingState,
    Surplus,
)
from scheduler_service.core.model.values import Micros
from scheduler_service.rpc.convert.values import time_out
from scheduler_service.rpc.interceptors import invalid

LATEST_US = 4_102_444_800_000_000
"""The year 2100: a later time is a mistake."""

_MOST = 2**63 - 1

Names = Mapping[int, str]
"""Names of all virtual clusters, by ID."""

# ---- in ----------------------------------------------------------------------------------------------------------------


def posted_in(asked: pb.PostRequest) -> PostRequested:
    """Raises InvalidArgument."""
    return PostRequested(
        asked.virtual_cluster,
        asked.request_id,
        PostingKind(asked.kind),
        _cells_in(asked.lot, "lot"),
        asked.bid_device_us if asked.HasField("bid_device_us") else None,
        _cells_in(asked.swap, "swap") if asked.HasField("swap") else None,
        _time_in(asked.expire_time, "expire_time") if asked.HasField("expire_time") else 0,
    )


def accepted_in(asked: pb.AcceptRequest) -> AcceptRequested:
    """Raises InvalidArgument."""
    begin = _time_in(asked.begin_time, "begin_time") if asked.HasField("begin_time") else 0
    end = _time_in(asked.end_time, "end_time") if asked.HasField("end_time") else 0
    return AcceptRequested(asked.virtual_cluster, asked.request_id, asked.posting_id, asked.cells, begin, end)


def _cells_in(lot: pb.CellLot, field: str) -> Cells:
    begin = _time_in(lot.begin_time, f"{field}.begin_time") if lot.HasField("begin_time") else 0
    return Cells(lot.pool, lot.level, lot.cells, begin, _time_in(lot.end_time, f"{field}.end_time"))


def _time_in(time: Timestamp, field: str) -> Micros:
    at = time.seconds * 1_000_000 + time.nanos // 1000
    if not 0 < at < LATEST_US:
        raise invalid(field, "time.range", "must be between 1970 and 2100")
    return at


# ---- out ---------------------------------------------------------------------------------------------------------------


def postings_out(postings: Iterable[Posting], exchanges: Iterable[Exchange], names: Names, now: Micros) -> list[pb.Posting]:
    """`exchanges`: at least those that have some of these postings and are not over."""
    postings = list(postings)
    board = Board(postings, exchanges, now)
    return [_posting_out(posting, board, names) for posting in postings]


def _posting_out(posting: Posting, board: Board, names: Names) -> pb.Posting:
    there, left = posting.id in board.postings, 0
    if there:
        rest = board.wanted_lot(posting)
        left = board.cells_left(posting, rest.begin_us, rest.end_us) if posting.kind is PostingKind.OFFER else rest.count
    over = posting.state is PostingState.OPEN and not there  # and the engine has not come to it
    return pb.Posting(
        posting_id=posting.id,
        kind=int(posting.kind),  # type: ignore[arg-type]
        virtual_cluster=names.get(posting.vc, ""),
        lot=_lot_out(posting.lot),
        bid_device_us=None if posting.bid is None else _amount(posting.bid),
        swap=None if posting.swap is None else _lot_out(posting.swap),
        state=int(PostingState.EXPIRED if over else posting.state),  # type: ignore[arg-type]
        left=left,
        post_time=time_out(posting.posted_us),
        expire_time=time_out(posting.expires_us),
        by_proxy=posting.by_proxy,
    )


def _lot_out(lot: Lot) -> pb.CellLot:
    return pb.CellLot(
        pool=lot.pool,
        level=lot.level,
        cells=lot.count,
        begin_time=time_out(lot.begin_us),
        end_time=time_out(lot.end_us),
        device_us=_amount(lot.device_us),
    )


def exchange_out(exchange: Exchange, names: Names) -> pb.CellExchange:
    return pb.CellExchange(
        exchange_id=exchange.id,
        offer_posting_id=exchange.offer,
        request_posting_id=exchange.request,
        giver=names.get(exchange.giver, ""),
        taker=names.get(exchange.taker, ""),
        lot=_lot_out(exchange.lot),
        price_device_us=_amount(exchange.price),
        state=int(exchange.state),  # type: ignore[arg-type]
        agree_time=time_out(exchange.agreed_us),
        open_time=time_out(exchange.opened_us),
        return_time=time_out(exchange.returned_us),
        in_return_for=exchange.in_return_for,
        return_asked_by=names.get(exchange.return_asked_by, ""),
    )


def entry_out(entry: LedgerEntry, names: Names) -> pb.LedgerEntry:
    return pb.LedgerEntry(
        virtual_cluster=names.get(entry.vc, ""),
        exchange_id=entry.exchange,
        kind=int(entry.what),  # type: ignore[arg-type]
        device_us=_amount(entry.device_us),
        time=time_out(entry.at_us),
    )


def surplus_out(surplus: Surplus, names: Names) -> pb.Surplus:
    return pb.Surplus(virtual_cluster=names.get(surplus.vc, ""), device_us=_amount(surplus.device_us))


def _amount(device_us: int) -> int:
    """The nearest that the API can say: sums have no bound, and one that is too large is no reason to show nobody anything."""
    return max(-_MOST, min(device_us, _MOST))
