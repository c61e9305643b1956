"""A market of virtual clusters for tests: rows, and a clock that sees to every deadline in order, as the engine does."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from scheduler_service.core.exchange.book import Board, accept, rows_of_deal
from scheduler_service.core.exchange.transitions import (
    Booked,
    advance_exchange,
    expire_if_due,
    prepare_posting,
    return_asked,
    withdraw_posting,
)
from scheduler_service.core.model.tenants.exchange import (
    Booking,
    Deal,
    Exchange,
    ExchangeState,
    LedgerEntry,
    Lot,
    Posting,
    PostingKind,
    exchange_due,
    posting_due,
)
from scheduler_service.core.model.values import Micros
from scheduler_service.policies.hived.exchange.arbiter import Fits, Match, balance_surplus, settle

HOUR: Micros = 3_600_000_000


def lot(count: int = 1, begin: int = 0, end: int = 10, *, level: str = "node", devices: int = 8, pool: str = "v100") -> Lot:
    """Times in hours."""
    return Lot(pool, level, count, begin * HOUR, end * HOUR, devices)


def always(_deal: Deal) -> str | None:
    return None


def surplus_of(entries: Iterable[LedgerEntry]) -> dict[int, int]:
    """VC -> what it has given less what it has taken. One that is not there has none."""
    surplus: dict[int, int] = defaultdict(int)
    for entry in entries:
        surplus[entry.vc] += entry.device_us
    return dict(surplus)


class Market:
    def __init__(self) -> None:
        self.now: Micros = 0
        self.postings: dict[int, Posting] = {}
        self.exchanges: dict[int, Exchange] = {}
        self.entries: dict[tuple[int, int, Booking], LedgerEntry] = {}
        self.opened: Counter[int] = Counter()
        self.closed: Counter[int] = Counter()
        self.deals: list[Deal] = []

    @property
    def board(self) -> Board:
        return Board(self.postings.values(), self.exchanges.values(), self.now)

    @property
    def surplus(self) -> dict[int, int]:
        return surplus_of(self.entries.values())

    def hours(self, vc: int) -> float:
        """Its surplus in GPU-hours."""
        return self.surplus.get(vc, 0) / HOUR

    def offer(self, vc: int, what: Lot, **more: Any) -> int:
        return self._post(PostingKind.OFFER, vc, what, **more)

    def request(self, vc: int, what: Lot, **more: Any) -> int:
        return self._post(PostingKind.REQUEST, vc, what, **more)

    def _post(self, kind: PostingKind, vc: int, what: Lot, until: int = 10_000, **more: Any) -> int:
        posting = prepare_posting(Posting(len(self.postings) + 1, kind, vc, what, self.now, until * HOUR, **more))
        self.postings[posting.id] = posting
        return posting.id

    def withdraw(self, posting: int) -> None:
        self.postings[posting] = withdraw_posting(self.postings[posting])

    def make(self, deal: Deal) -> list[Exchange]:
        made = rows_of_deal(self.board, deal, len(self.exchanges) + 1)
        self.deals.append(deal)
        for posting in made.postings:
            self.postings[posting.id] = posting
        for one in made.exchanges:
            assert one.exchange.id not in self.exchanges
            self.book(one)
        return [one.exchange for one in made.exchanges]

    def book(self, one: Booked) -> None:
        before, after = self.exchanges.get(one.exchange.id), one.exchange
        self.exchanges[after.id] = after
        was = ExchangeState.MATCHED if before is None else before.state
        self.opened[after.id] += was is not ExchangeState.ACTIVE and after.state is ExchangeState.ACTIVE
        self.closed[after.id] += was is not ExchangeState.RETURNED and after.state is ExchangeState.RETURNED
        for entry in one.entries:
            assert (entry.vc, entry.exchange, entry.what) not in self.entries
            self.entries[entry.vc, entry.exchange, entry.what] = entry

    def settle(self, match: Match = balance_surplus, fits: Fits = always) -> list[Deal]:
        """The deals that were made."""
        made = []
        for deal in settle(self.board, self.surplus, match, fits):
            self.make(deal)
            made.append(deal)
        return made

    def accept(self, posting: int, vc: int, part: Lot | None = None) -> list[Exchange]:
        return self.make(accept(self.board, posting, vc, part))

    def ask_return(self, exchange: int, vc: int) -> None:
        self.book(return_asked(self.exchanges[exchange], vc, self.now))

    def until(self, hour: int) -> None:
        """Sees to every deadline at its time."""
        while (due := min(self._due(), default=None)) is not None and due <= hour * HOUR:
            self.now = max(self.now, due)
            self.see()
        self.now = hour * HOUR

    def see(self) -> None:
        """Sees to what is due now."""
        for posting in self.postings.values():
            self.postings[posting.id] = expire_if_due(posting, self.now)
        for exchange in list(self.exchanges.values()):
            self.book(advance_exchange(exchange, self.now))

    def _due(self) -> Iterator[Micros]:
        dues = [*map(posting_due, self.postings.values()), *map(exchange_due, self.exchanges.values())]
        return (due for due in dues if due is not None)
