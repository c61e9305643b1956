"""Who exchanges cells with whom: the arbiter's policies (HiveD, section 3.3).

The port is `Match`: the next deal, given the board and all surpluses. `fits` says why a deal cannot be, given quotas and the
cluster; the next candidate is tried then.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache

from scheduler_service.core.exchange.book import Board, share
from scheduler_service.core.model.tenants.exchange import Deal, Posting

Surplus = Mapping[int, int]
"""VC -> device-microseconds; one that is not there has none."""
Fits = Callable[[Deal], str | None]
"""Why the deal cannot be; None: it can."""
Match = Callable[[Board, Surplus, Fits], Deal | None]


def settle(board: Board, surplus: Surplus, match: Match, fits: Fits) -> Generator[Deal, str | None, None]:
    """Yield deal after deal until nothing matches. Each is made before the next is asked for; a caller that cannot make it
    sends why, and it is not proposed again."""
    refused: set[tuple[int, int]] = set()

    def still_fits(deal: Deal) -> str | None:
        return "it was refused" if (deal.offer, deal.request) in refused else fits(deal)

    while (deal := match(board, surplus, still_fits)) is not None:
        if (yield deal) is None:
            board, surplus = board.after_deal(deal), _after_payment(surplus, deal)
        else:
            refused.add((deal.offer, deal.request))


def _after_payment(surplus: Surplus, deal: Deal) -> Surplus:
    price = deal.price - (deal.swap.device_us if deal.swap is not None else 0)
    return {
        **surplus,
        deal.giver: surplus.get(deal.giver, 0) + price,
        deal.taker: surplus.get(deal.taker, 0) - price,
    }


# ---- balanced cell exchange ----------------------------------------------------------------------------------------------


def balance_surplus(board: Board, surplus: Surplus, fits: Fits) -> Deal | None:
    """Algorithm 2: of the tenant with the highest surplus, the first request that an offer could satisfy; of these, the offer
    whose owner has the lowest surplus. The price is what changes hands; bids are not looked at.

    Among equals the VC with the lower id, and the earlier post.
    """
    requests = sorted(board.requests(), key=lambda request: (-surplus.get(request.vc, 0), request.vc))
    for request in requests:
        qualified = [offer for _, offer in board.asks(request)]
        for offer in sorted(qualified, key=lambda o: (surplus.get(o.vc, 0), o.vc, o.posted_us, o.id)):
            deal = board.deal(request, offer)
            if fits(deal) is None:
                return deal
    return None


# ---- second-price auction ------------------------------------------------------------------------------------------------


def auction(board: Board, _surplus: Surplus, fits: Fits) -> Deal | None:
    """A sealed-bid auction at the second price: the highest bid gets its cells, and pays the bid that it had to beat.

    Requests are served by decreasing bid, the earlier post first among equals, each from the offer that asks least of it. What
    it pays is the least bid with which it would still have got an offer, the others' being as they are, and so never less than
    that offer asks: for one lot the second price, for several that are alike the highest bid that went without. So a VC with
    one request gains nothing by bidding anything but its worth. A VC does not bid against itself. Swaps have no price, and are
    left to `balance_surplus` and `accept`.
    """
    bids, asked = _bids(board), cache(fits)
    for request, bid in bids:
        cheapest = _cheapest(board, request, asked)
        if cheapest is not None and cheapest[0] <= bid:
            rivals = [(r, b) for r, b in bids if r.vc != request.vc and _kind(r) == _kind(request)]
            return board.deal(request, cheapest[1], _price(board, request, rivals, asked))
    return None


def _kind(posting: Posting) -> tuple[str, str]:
    return posting.lot.pool, posting.lot.level


def _bids(board: Board) -> list[tuple[Posting, int]]:
    """The highest first. A request whose window has begun bids the share of what is left of it."""
    requests = [request for request in board.requests() if request.swap is None]
    bids = [(request, share(request, board.wanted_lot(request))) for request in requests]
    return sorted(bids, key=lambda each: -each[1])


def _cheapest(board: Board, request: Posting, fits: Fits) -> tuple[int, Posting] | None:
    """The offer that asks least for what is requested."""
    return next(((ask, offer) for ask, offer in board.asks(request) if fits(board.deal(request, offer, ask)) is None), None)


def _price(board: Board, request: Posting, rivals: Sequence[tuple[Posting, int]], fits: Fits) -> int:
    """The least bid with which the request gets an offer.

    Rivals are served without it, one by one. Before each it would have to bid at least as much as that one, and as the cheapest
    offer asks that is there still. The bids fall and the asks rise; between them lies the least.
    """
    prices: list[int] = []
    for rival, bid in [*rivals, (None, 0)]:
        cheapest = _cheapest(board, request, fits)
        if cheapest is None:
            break
        ask, _ = cheapest
        prices.append(max(bid, ask))
        if rival is None or bid <= ask:
            break
        theirs = _cheapest(board, rival, fits)
        if theirs is not None and theirs[0] <= bid:
            board = board.after_deal(board.deal(rival, theirs[1]))
    return min(prices)
