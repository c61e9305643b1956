"""The bulletin board (HiveD, figure 5): what is on it at a time, and the deals that can be made from it.

Deals are proposed, by a policy or by a tenant; `why_not` checks every one of them again, and `rows_of_deal` makes the rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from scheduler_service.core.errors import FailedPrecondition, NotFound, PlanRefused
from scheduler_service.core.exchange.quota_timeline import cells_used, covers, from_now, is_empty
from scheduler_service.core.exchange.transitions import Booked, ledger_entries
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.exchange import (
    Booking,
    Deal,
    Exchange,
    ExchangeState,
    Lot,
    Posting,
    PostingKind,
    PostingState,
)
from scheduler_service.core.model.values import Micros


class Board:
    """The open postings at a time. A board never changes; `after_deal` makes another.

    An offer is kept whole, as it was posted, next to the lots that exchanges have of it: so what is left of it, some cells all
    the time and others before and after a window, needs no rows of its own, and comes back when an exchange ends early.
    """

    def __init__(self, postings: Iterable[Posting], exchanges: Iterable[Exchange], now: Micros) -> None:
        there = [p for p in postings if p.state is PostingState.OPEN and now <= p.expires_us and now < p.lot.end_us]
        self.now = now
        self.postings = {posting.id: posting for posting in sorted(there, key=lambda p: (p.posted_us, p.id))}
        """Earliest post first."""
        self._offers: dict[tuple[str, str], list[Posting]] = defaultdict(list)
        self._own: dict[tuple[int, str, str], list[Posting]] = defaultdict(list)
        for posting in self.postings.values():
            if posting.kind is PostingKind.OFFER:
                self._offers[posting.lot.pool, posting.lot.level].append(posting)
                self._own[posting.vc, posting.lot.pool, posting.lot.level].append(posting)
        taken: dict[int, tuple[Lot, ...]] = defaultdict(tuple)
        for exchange in exchanges:
            if exchange.offer in self.postings and exchange.state is not ExchangeState.RETURNED:
                taken[exchange.offer] += (exchange.lot,)
        self._taken: Mapping[int, tuple[Lot, ...]] = dict(taken)
        self._covering: dict[int, list[tuple[int, Posting]]] = {}
        """See `asks`; shared by all boards that come after, as it does not depend on what is taken."""

    def after_deal(self, deal: Deal) -> "Board":
        """The board once the deal is made."""
        new = object.__new__(Board)
        new.now, new._offers, new._own, new._covering = self.now, self._offers, self._own, self._covering
        new.postings = self.postings.copy()
        new.postings.pop(deal.request, None)
        if deal.swap is not None:
            new.postings.pop(deal.offer, None)
        new._taken = {**self._taken, deal.offer: (*self._taken.get(deal.offer, ()), deal.lot)} if deal.offer else self._taken
        return new

    def requests(self) -> list[Posting]:
        """Earliest post first."""
        return [posting for posting in self.postings.values() if posting.kind is PostingKind.REQUEST]

    def offers_of(self, vc: int, pool: str, level: str) -> list[Posting]:
        """Earliest post first."""
        return [posting for posting in self._own.get((vc, pool, level), ()) if posting.id in self.postings]

    def wanted_lot(self, posting: Posting) -> Lot:
        """The lot of the posting, from now on."""
        return from_now(posting.lot, self.now)

    def cells_left(self, offer: Posting, begin_us: Micros, end_us: Micros) -> int:
        """How many of its cells no exchange has at any time of a window."""
        taken = self._taken.get(offer.id)
        return offer.lot.count - max(cells_used(taken, begin_us, end_us)) if taken else offer.lot.count

    def holds(self, offer: Posting, lot: Lot) -> bool:
        """Whether the offer, or what is left of it, has such a lot."""
        return covers(offer.lot, lot) and lot.count <= self.cells_left(offer, lot.begin_us, lot.end_us)

    def asks(self, request: Posting) -> Iterator[tuple[int, Posting]]:
        """The offers that could meet the whole request (Algorithm 2, line 5), and what each asks. They are from other VCs;
        those that want cells in return need a request that gives them. The lowest ask comes first, then the earliest post."""
        lot = self.wanted_lot(request)
        covering = self._covering.get(request.id)
        if covering is None:
            offers = self._offers.get((lot.pool, lot.level), ())
            fitting = [p for p in offers if p.vc != request.vc and _swaps(p.swap, request.swap) and covers(p.lot, lot)]
            covering = sorted([(share(p, lot), p) for p in fitting], key=lambda each: each[0])
            self._covering[request.id] = covering
        for ask, offer in covering:
            if offer.id in self.postings and lot.count <= self.cells_left(offer, lot.begin_us, lot.end_us):
                yield ask, offer

    def deal(self, request: Posting, offer: Posting, price: int | None = None) -> Deal:
        """Without a price, the deal costs as many device-microseconds as change hands."""
        lot = self.wanted_lot(request)
        price = lot.device_us if price is None else price
        return Deal(offer.vc, request.vc, lot, price, offer.id, request.id, offer.swap)

    def why_not(self, deal: Deal) -> str | None:
        """Why the deal cannot be made; None: it can, as far as the board is concerned."""
        offer, request = self.postings.get(deal.offer), self.postings.get(deal.request)
        if deal.giver == deal.taker:
            return "a virtual cluster does not exchange with itself"
        if is_empty(deal.lot) or deal.lot.begin_us < self.now:
            return "there are no cells in it, or it begins in the past"
        if not (deal.offer or deal.request) or deal.price < 0:
            return "the deal meets no posting, or its price is less than nothing"
        if deal.offer:
            if offer is None or offer.kind is not PostingKind.OFFER or offer.vc != deal.giver:
                return f"posting {deal.offer} is no open offer of virtual cluster {deal.giver}"
            if not self.holds(offer, deal.lot):
                return f"offer {offer.id} does not have that, or not any more"
        if deal.request:
            if request is None or request.kind is not PostingKind.REQUEST or request.vc != deal.taker:
                return f"posting {deal.request} is no open request of virtual cluster {deal.taker}"
            if self.wanted_lot(request) != deal.lot:
                return f"request {request.id} wants something else"
        wants = offer.swap if offer is not None else request.swap if request is not None else None
        gives = request.swap if request is not None else wants
        if deal.swap != wants or not _swaps(wants, gives):
            return "what is given in return is not what was asked for"
        if wants is not None and deal.price != deal.lot.device_us:
            return "in a swap each side's cells are booked as what they are"
        return None


def share(posting: Posting, part: Lot) -> int:
    """The share of a posting's bid for a part of its cells; rounded up for an offer, which is not sold for less."""
    if posting.bid is None:
        return part.device_us
    of = part.count * (part.end_us - part.begin_us)
    whole = posting.lot.count * (posting.lot.end_us - posting.lot.begin_us)
    return -(-posting.bid * of // whole) if posting.kind is PostingKind.OFFER else posting.bid * of // whole


def _swaps(wants: Lot | None, gives: Lot | None) -> bool:
    """Whether both are for surplus, or one wants cells and the other gives them, or more."""
    return wants is gives is None or (wants is not None and gives is not None and covers(gives, wants))


class Agreed(NamedTuple):
    """The rows that a deal makes."""

    exchanges: tuple[Booked, ...]
    """One, or the two of a swap. Each is booked with its own device-microseconds."""
    postings: tuple[Posting, ...]
    """Those that were met, and leave the board."""


def rows_of_deal(board: Board, deal: Deal, exchange_id: int) -> Agreed:
    """Makes the rows of a deal, with one id, or two for a swap. Raises PlanRefused if the board does not allow it. The caller
    has checked that the cluster and the giver have these cells then."""
    refused = board.why_not(deal)
    if refused is not None:
        raise PlanRefused(refused)
    there = Exchange(exchange_id, deal.offer, deal.request, deal.giver, deal.taker, deal.lot, deal.price, board.now)
    exchanges = [there]
    if deal.swap is not None:
        price = deal.swap.device_us
        exchanges.append(Exchange(exchange_id + 1, 0, 0, deal.taker, deal.giver, deal.swap, price, board.now, exchange_id))
    remaining = board.after_deal(deal).postings
    met = [posting for posting in (board.postings.get(deal.offer), board.postings.get(deal.request)) if posting is not None]
    return Agreed(
        tuple(Booked(x, ledger_entries(x, Booking.AGREED, x.price, board.now)) for x in exchanges),
        tuple(with_changes(posting, state=PostingState.MATCHED) for posting in met if posting.id not in remaining),
    )


# ---- a tenant's own choice -----------------------------------------------------------------------------------------------


def accept(board: Board, posting_id: int, by_vc: int, part: Lot | None = None) -> Deal:
    """The deal in which a tenant takes an offer, or gives what another requests, of its own choice.

    Of an offer it gets `part`, or all cells that are left throughout the window, for that share of what it asks; an offer to
    swap wants its whole return even for a part. A request is met whole, for what it bids. Raises Refused if there is no deal.
    """
    posting = board.postings.get(posting_id)
    if posting is None:
        raise NotFound("NO_OPEN_POSTING", f"posting {posting_id} is not on the board", posting_id=str(posting_id))
    lot = board.wanted_lot(posting)
    if part is not None:
        lot = part
    elif posting.kind is PostingKind.OFFER:
        lot = with_changes(lot, count=board.cells_left(posting, lot.begin_us, lot.end_us))
    if posting.kind is PostingKind.REQUEST:
        deal = Deal(by_vc, posting.vc, lot, share(posting, lot), request=posting.id, swap=posting.swap)
    else:
        deal = Deal(posting.vc, by_vc, lot, share(posting, lot), offer=posting.id, swap=posting.swap)
    refused = board.why_not(deal)
    if refused is not None:
        raise FailedPrecondition("NO_DEAL", refused, posting_id=str(posting_id))
    return deal
