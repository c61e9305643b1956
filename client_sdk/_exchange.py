"""`Client.exchange` and `AsyncClient.exchange`: cells that virtual clusters give each other for windows of time."""

from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from typing import Protocol, TypeVar

from client_sdk._requests import exchange as _requests
from client_sdk._requests.jobs import Request
from client_sdk._values.job_options import Moment, Time
from client_sdk.models import CellExchange, CellLot, ExchangeState, LedgerEntry, Posting, PostingKind, PostingState, Surplus

T = TypeVar("T")


class _Ask(Protocol):
    def __call__(self, request: Request[T], /) -> T: ...


class _AskAsync(Protocol):
    def __call__(self, request: Request[T], /) -> Awaitable[T]: ...


class Exchange:
    """Offers, requests, deals and the ledger. Amounts that are given are GPU-hours of surplus.

    Methods raise NotFound for what is not there (any more), and FailedPrecondition for what cannot be agreed on: the error's
    `reason` and `metadata` say why.
    """

    def __init__(self, ask: _Ask) -> None:
        self._ask = ask

    def offer(
        self,
        virtual_cluster: str,
        pool: str,
        level: str,
        cells: int = 1,
        *,
        begin: Moment | None = None,
        end: Moment | None = None,
        duration: Time | None = None,
        ask: float | None = None,
        wants: CellLot | None = None,
        expires: Moment | None = None,
        request_id: str | None = None,
    ) -> Posting:
        """Offers cells from `begin` (None: now) until `end`, or for `duration`, in exchange for at least `ask` GPU-hours of
        surplus (None: as many as the lot has) or for the cells in `wants`. `expires`: when it leaves the board at the latest.

        A moment is a datetime with a time zone, or text as in `ebb exchange offer`: "2025-01-31T08:00" (UTC), "+2h" (from now;
        a window that begins in a whole number of minutes begins at a full minute), "now".

        `request_id` is an idempotency key: a repeated offer with the same ID creates no second posting. By default it is
        generated. An offer with times relative to now is a different one each time.
        """
        lot = _requests.lot(pool, level, cells, begin, end, duration)
        return self._ask(_requests.post(virtual_cluster, PostingKind.OFFER, lot, ask, wants, expires, request_id))

    def request(
        self,
        virtual_cluster: str,
        pool: str,
        level: str,
        cells: int = 1,
        *,
        begin: Moment | None = None,
        end: Moment | None = None,
        duration: Time | None = None,
        bid: float | None = None,
        gives: CellLot | None = None,
        expires: Moment | None = None,
        request_id: str | None = None,
    ) -> Posting:
        """Requests others' cells, for at most `bid` GPU-hours of surplus, or for the cells in `gives`; the rest as `offer`."""
        lot = _requests.lot(pool, level, cells, begin, end, duration)
        return self._ask(_requests.post(virtual_cluster, PostingKind.REQUEST, lot, bid, gives, expires, request_id))

    def accept(
        self,
        posting: Posting | int,
        virtual_cluster: str,
        *,
        cells: int = 0,
        begin: Moment | None = None,
        end: Moment | None = None,
        request_id: str | None = None,
    ) -> Sequence[CellExchange]:
        """Takes an offer, all of it that is left or a part, or gives what a request asks for. A swap makes two exchanges."""
        return self._ask(_requests.accept(posting, virtual_cluster, cells, begin, end, request_id))

    def withdraw(self, posting: Posting | int, virtual_cluster: str = "") -> Posting:
        """Takes a posting off the board; agreed exchanges remain. Operators may omit the virtual cluster."""
        return self._ask(_requests.withdraw(posting, virtual_cluster))

    def give_back(self, exchange: CellExchange | int, virtual_cluster: str = "") -> CellExchange:
        """Asks to end an exchange early: it ends once both sides have asked. Only operators may
        omit the virtual cluster; then it ends immediately. Safe to repeat."""
        return self._ask(_requests.give_back(exchange, virtual_cluster))

    def postings(self, *, virtual_cluster: str = "", states: Sequence[PostingState] = ()) -> Iterator[Posting]:
        """Postings in these states (none given means the board), newest first, fetched page by page as you iterate."""
        token = ""
        while True:
            page = self._ask(_requests.PostingsPage(virtual_cluster, tuple(states), token))
            yield from page.items
            if not (token := page.next_token):
                return

    def exchanges(self, *, virtual_cluster: str = "", states: Sequence[ExchangeState] = ()) -> Iterator[CellExchange]:
        """The same for exchanges; no states given means those that are not over."""
        token = ""
        while True:
            page = self._ask(_requests.ExchangesPage(virtual_cluster, tuple(states), token))
            yield from page.items
            if not (token := page.next_token):
                return

    def surpluses(self, *, virtual_cluster: str = "") -> Sequence[Surplus]:
        """Device time that each virtual cluster has given, less what it has taken. The sum over all of them is 0."""
        return self._ask(_requests.GetSurpluses(virtual_cluster))

    def ledger(self, *, virtual_cluster: str = "") -> Iterator[LedgerEntry]:
        """All entries of the ledger, newest exchange first."""
        token = ""
        while True:
            page = self._ask(_requests.LedgerPage(virtual_cluster, token))
            yield from page.items
            if not (token := page.next_token):
                return


class AsyncExchange:
    """The calls of `Exchange`, as coroutines."""

    def __init__(self, ask: _AskAsync) -> None:
        self._ask = ask

    async def offer(
        self,
        virtual_cluster: str,
        pool: str,
        level: str,
        cells: int = 1,
        *,
        begin: Moment | None = None,
        end: Moment | None = None,
        duration: Time | None = None,
        ask: float | None = None,
        wants: CellLot | None = None,
        expires: Moment | None = None,
        request_id: str | None = None,
    ) -> Posting:
        """As `Exchange.offer`."""
        lot = _requests.lot(pool, level, cells, begin, end, duration)
        return await self._ask(_requests.post(virtual_cluster, PostingKind.OFFER, lot, ask, wants, expires, request_id))

    async def request(
        self,
        virtual_cluster: str,
        pool: str,
        level: str,
        cells: int = 1,
        *,
        begin: Moment | None = None,
        end: Moment | None = None,
        duration: Time | None = None,
        bid: float | None = None,
        gives: CellLot | None = None,
        expires: Moment | None = None,
        request_id: str | None = None,
    ) -> Posting:
        """As `Exchange.request`."""
        lot = _requests.lot(pool, level, cells, begin, end, duration)
        return await self._ask(_requests.post(virtual_cluster, PostingKind.REQUEST, lot, bid, gives, expires, request_id))

    async def accept(
        self,
        posting: Posting | int,
        virtual_cluster: str,
        *,
        cells: int = 0,
        begin: Moment | None = None,
        end: Moment | None = None,
        request_id: str | None = None,
    ) -> Sequence[CellExchange]:
        """As `Exchange.accept`."""
        return await self._ask(_requests.accept(posting, virtual_cluster, cells, begin, end, request_id))

    async def withdraw(self, posting: Posting | int, virtual_cluster: str = "") -> Posting:
        """As `Exchange.withdraw`."""
        return await self._ask(_requests.withdraw(posting, virtual_cluster))

    async def give_back(self, exchange: CellExchange | int, virtual_cluster: str = "") -> CellExchange:
        """As `Exchange.give_back`."""
        return await self._ask(_requests.give_back(exchange, virtual_cluster))

    async def postings(
        self, *, virtual_cluster: str = "", states: Sequence[PostingState] = ()
    ) -> AsyncGenerator[Posting, None]:
        """As `Exchange.postings`."""
        token = ""
        while True:
            page = await self._ask(_requests.PostingsPage(virtual_cluster, tuple(states), token))
            for posting in page.items:
                yield posting
            if not (token := page.next_token):
                return

    async def exchanges(
        self, *, virtual_cluster: str = "", states: Sequence[ExchangeState] = ()
    ) -> AsyncGenerator[CellExchange, None]:
        """As `Exchange.exchanges`."""
        token = ""
        while True:
            page = await self._ask(_requests.ExchangesPage(virtual_cluster, tuple(states), token))
            for exchange in page.items:
                yield exchange
            if not (token := page.next_token):
                return

    async def surpluses(self, *, virtual_cluster: str = "") -> Sequence[Surplus]:
        """As `Exchange.surpluses`."""
        return await self._ask(_requests.GetSurpluses(virtual_cluster))

    async def ledger(self, *, virtual_cluster: str = "") -> AsyncGenerator[LedgerEntry, None]:
        """As `Exchange.ledger`."""
        token = ""
        while True:
            page = await self._ask(_requests.LedgerPage(virtual_cluster, token))
            for entry in page.items:
                yield entry
            if not (token := page.next_token):
                return
