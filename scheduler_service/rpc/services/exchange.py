"""ebb.v1.Exchange: the bulletin board of cells, deals and the ledger (HiveD, section 3.3).

Changes go through the engine; reads come from the database, which also has past postings and exchanges.
"""

import logging
from collections.abc import Sequence

from ebb.v1 import exchange_pb2 as pb
from ebb.v1 import exchange_pb2_grpc

from scheduler_service.core.errors import NotFound, no_such_vc, no_virtual_clusters
from scheduler_service.core.handlers.exchange import check_same_deal, check_same_post
from scheduler_service.core.messages import Exchanged, PostingChanged, ReturnRequested, WithdrawRequested
from scheduler_service.core.model.tenants.exchange import ExchangeState, Posting, PostingState
from scheduler_service.core.model.tokens import Role
from scheduler_service.rpc.access import caller, user
from scheduler_service.rpc.backend import Backend
from scheduler_service.rpc.convert.exchange import (
    Names,
    accepted_in,
    entry_out,
    exchange_out,
    posted_in,
    postings_out,
    surplus_out,
)
from scheduler_service.rpc.interceptors import PermissionDenied
from scheduler_service.rpc.method_table import Context
from scheduler_service.rpc.paging import DEFAULT_PAGE, last_id
from scheduler_service.run.token_cache import wall_clock

_LIVE = (ExchangeState.MATCHED, ExchangeState.ACTIVE)

log = logging.getLogger(__name__)


class Exchange(exchange_pb2_grpc.ExchangeServicer):
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._market = backend.reader.market

    # ---- changes -------------------------------------------------------------------------------------------------------

    async def Post(self, request: pb.PostRequest, _context: Context) -> pb.PostResponse:
        event, service = posted_in(request), self._backend.leading.service
        vc = _id_of(request.virtual_cluster, await self._names())
        known = (
            await self._backend.read(self._market.find_posted, vc, request.request_id) if vc and request.request_id else None
        )
        if known is not None:
            check_same_post(known, event)
            return pb.PostResponse(posting=await self._posting(known.id))
        reply = await service.handle(event)
        assert isinstance(reply, PostingChanged)
        _note(f"posted {event.kind.name.lower()} {reply.posting}", request.virtual_cluster)
        return pb.PostResponse(posting=await self._posting(reply.posting))

    async def Withdraw(self, request: pb.WithdrawRequest, _context: Context) -> pb.WithdrawResponse:
        _require_side(request.virtual_cluster, "Withdraw")
        try:
            await self._backend.leading.service.handle(WithdrawRequested(request.posting_id, request.virtual_cluster))
            _note(f"withdrew posting {request.posting_id}", request.virtual_cluster)
        except NotFound:
            known = await self._backend.read(self._market.posting, request.posting_id)
            if known is None or known.state is not PostingState.WITHDRAWN:
                raise
            if request.virtual_cluster and _id_of(request.virtual_cluster, await self._names()) != known.vc:
                raise
        return pb.WithdrawResponse(posting=await self._posting(request.posting_id))

    async def Accept(self, request: pb.AcceptRequest, _context: Context) -> pb.AcceptResponse:
        event, service = accepted_in(request), self._backend.leading.service
        vc = _id_of(request.virtual_cluster, await self._names())
        known = (
            await self._backend.read(self._market.find_accepted, vc, request.request_id) if vc and request.request_id else None
        )
        if known is not None:
            check_same_deal(known, event)
            return pb.AcceptResponse(exchanges=await self._exchanges((known.id,)))
        reply = await service.handle(event)
        assert isinstance(reply, Exchanged)
        made = " and ".join(str(exchange) for exchange in reply.exchanges)
        _note(f"accepted posting {request.posting_id}, which is exchange {made},", request.virtual_cluster)
        return pb.AcceptResponse(exchanges=await self._exchanges(reply.exchanges))

    async def ReturnCells(self, request: pb.ReturnCellsRequest, _context: Context) -> pb.ReturnCellsResponse:
        _require_side(request.virtual_cluster, "ReturnCells")
        try:
            await self._backend.leading.service.handle(ReturnRequested(request.exchange_id, request.virtual_cluster))
            _note(f"asked for the return of exchange {request.exchange_id}", request.virtual_cluster)
        except NotFound:  # it may be over, which is what was wanted
            known = {x.id: x for x in await self._backend.read(self._market.exchanges, [request.exchange_id])}
            over = known.get(request.exchange_id)
            side = _id_of(request.virtual_cluster, await self._names()) if request.virtual_cluster else 0
            if over is None or side not in (0, over.giver, over.taker) or (request.virtual_cluster and not side):
                raise
        found = await self._exchanges((request.exchange_id,))
        return pb.ReturnCellsResponse(exchange=next(x for x in found if x.exchange_id == request.exchange_id))

    # ---- what there is -------------------------------------------------------------------------------------------------

    async def ListPostings(self, request: pb.ListPostingsRequest, _context: Context) -> pb.ListPostingsResponse:
        names, size = await self._names(), request.page_size or DEFAULT_PAGE
        states = [PostingState(state) for state in request.states if state] or [PostingState.OPEN]
        asked = states, _asked_vc(request.virtual_cluster, names), last_id(request.page_token), size + 1
        found = await self._backend.read(self._market.list_postings, *asked)
        token = str(found[size - 1].id) if len(found) > size else ""
        return pb.ListPostingsResponse(postings=await self._show_postings(found[:size], names), next_page_token=token)

    async def ListExchanges(self, request: pb.ListExchangesRequest, _context: Context) -> pb.ListExchangesResponse:
        names, size = await self._names(), request.page_size or DEFAULT_PAGE
        states = [ExchangeState(state) for state in request.states if state] or list(_LIVE)
        asked = states, _asked_vc(request.virtual_cluster, names), last_id(request.page_token), size + 1
        found = await self._backend.read(self._market.list_exchanges, *asked)
        token = str(found[size - 1].id) if len(found) > size else ""
        return pb.ListExchangesResponse(exchanges=[exchange_out(x, names) for x in found[:size]], next_page_token=token)

    async def GetLedger(self, request: pb.GetLedgerRequest, _context: Context) -> pb.GetLedgerResponse:
        names, size = await self._names(), request.page_size or DEFAULT_PAGE
        vc = _asked_vc(request.virtual_cluster, names)
        found = await self._backend.read(self._market.ledger, vc, last_id(request.page_token), size + 1)
        surpluses = await self._backend.read(self._market.surpluses)
        shown = list(dict.fromkeys(entry.exchange for entry in found))
        on_page = set(shown[:size])
        return pb.GetLedgerResponse(
            surpluses=[surplus_out(row, names) for row in surpluses if vc in (0, row.vc)],
            entries=[entry_out(entry, names) for entry in found if entry.exchange in on_page],
            next_page_token=str(shown[size - 1]) if len(shown) > size else "",
        )

    async def _posting(self, posting_id: int) -> pb.Posting:
        found = await self._backend.read(self._market.posting, posting_id)
        assert found is not None
        return (await self._show_postings([found], await self._names()))[0]

    async def _show_postings(self, postings: Sequence[Posting], names: Names) -> list[pb.Posting]:
        exchanges = await self._backend.read(self._market.live_of_offers, [posting.id for posting in postings])
        return postings_out(postings, exchanges, names, wall_clock())

    async def _exchanges(self, exchange_ids: Sequence[int]) -> list[pb.CellExchange]:
        found, names = await self._backend.read(self._market.exchanges, exchange_ids), await self._names()
        return [exchange_out(exchange, names) for exchange in found]

    async def _names(self) -> Names:
        """Return the names of the virtual clusters. Raises FailedPrecondition if the site has none."""
        if not self._backend.virtual_clusters:
            raise no_virtual_clusters()
        return await self._backend.read(self._market.virtual_clusters)


def _note(what: str, vc: str) -> None:
    """Who moved a guarantee: the rows only know for which virtual cluster."""
    log.info("%s %s for %s", user(), what, f"virtual cluster {vc}" if vc else "the site")


def _id_of(name: str, names: Names) -> int:
    """Return the ID of the virtual cluster of this name, or 0."""
    return next((vc for vc, known in names.items() if known == name), 0)


def _asked_vc(name: str, names: Names) -> int:
    """0: all. Raises NotFound."""
    vc = _id_of(name, names) if name else 0
    if name and not vc:
        raise no_such_vc(name, names.values())
    return vc


def _require_side(vc: str, call: str) -> None:
    """The site's own word is its operators'. Raises PermissionDenied."""
    who = caller()
    if not vc and Role.OPERATOR not in who.roles:
        role = " and ".join(role.name.lower() for role in sorted(who.roles))
        text = (
            f"{call} for the site is for operators, and the token is of {who.subject} as {role}: say for which virtual cluster"
        )
        raise PermissionDenied("ROLE", text, role=role)
