"""Who exchanges with whom: Algorithm 2, the second-price auction, a tenant's own choice, and the proxy."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.errors import FailedPrecondition, NotFound
from scheduler_service.core.exchange.book import Board
from scheduler_service.core.model.tenants.exchange import Deal, Lot, PostingState
from scheduler_service.policies.hived.exchange.arbiter import Match, auction, balance_surplus, settle
from scheduler_service.policies.hived.exchange.proxy import Idle, ProxySettings, propose_idle, propose_withdrawals
from tests.core.market import HOUR, Market, always, lot

A, B, C, D = 1, 2, 3, 4


def pairs(deals: Sequence[Deal]) -> list[tuple[int, int]]:
    return [(deal.request, deal.offer) for deal in deals]


def settled(m: Market, surplus: dict[int, int], match: Match = balance_surplus) -> list[tuple[int, int]]:
    """What is matched, were the surplus so many hours."""
    return pairs(list(settle(m.board, {vc: hours * HOUR for vc, hours in surplus.items()}, match, always)))


# ---- balanced cell exchange (Algorithm 2) ----------------------------------------------------------------------------


def test_the_highest_surplus_is_served_first_from_the_lowest() -> None:
    m = Market()
    rich, poor = m.offer(C, lot()), m.offer(D, lot())
    a, b = m.request(A, lot()), m.request(B, lot())
    assert settled(m, {A: 100, B: 200, C: 50, D: -50}) == [(b, poor), (a, rich)]
    assert settled(m, {A: 200, B: 100, C: -50, D: 50}) == [(a, rich), (b, poor)]


def test_of_one_tenant_the_first_request_that_has_qualified_offers() -> None:
    m = Market()
    too_much, later, sooner = m.request(A, lot(9)), m.request(A, lot(2)), m.request(A, lot(1))
    offer = m.offer(B, lot(2))
    assert settled(m, {}) == [(later, offer)]
    m.withdraw(later)
    assert settled(m, {}) == [(sooner, offer)]
    assert m.postings[too_much].state is PostingState.OPEN


def test_a_tenant_without_qualified_offers_is_passed() -> None:
    m = Market()
    m.request(A, lot(1, level="gpu", devices=1))
    m.request(A, lot(1, pool="a100"))
    m.request(A, lot(1, 0, 11))
    offer, b = m.offer(C, lot()), m.request(B, lot())
    assert settled(m, {A: 100}) == [(b, offer)]


def test_surplus_moves_with_each_deal_and_changes_who_is_next() -> None:
    """Served twice in a row A would be ahead by 20 hours: its first request costs 80."""
    m = Market()
    first, second, other = m.request(A, lot()), m.request(A, lot()), m.request(B, lot())
    one, two = m.offer(C, lot(2)), m.offer(D, lot(2))
    assert settled(m, {A: 100, B: 80}) == [(first, one), (other, two), (second, one)], "and C's surplus rose before D's"


def test_a_tenant_does_not_serve_itself() -> None:
    m = Market()
    m.offer(A, lot())
    m.request(A, lot())
    assert settled(m, {}) == []


def test_ties_go_to_the_lower_virtual_cluster_and_the_earlier_post() -> None:
    m = Market()
    d2, d1, c = m.offer(D, lot()), m.offer(D, lot()), m.offer(C, lot())
    b, a = m.request(B, lot()), m.request(A, lot())
    a2 = m.request(A, lot(2))
    assert settled(m, {}) == [(a, c), (b, d2)]
    assert m.postings[d1].state is m.postings[a2].state is PostingState.OPEN


def test_what_is_booked_is_what_changes_hands() -> None:
    m = Market()
    m.offer(A, lot(4, 0, 10), bid=0)
    m.request(B, lot(3, 2, 5), bid=1000 * HOUR)
    m.settle()
    assert (m.hours(A), m.hours(B)) == (72, -72)


POSTINGS = st.lists(
    st.tuples(st.booleans(), st.integers(1, 5), st.integers(1, 3), st.integers(0, 3), st.integers(1, 4), st.integers(0, 50)),
    max_size=12,
)


def market(postings: Sequence[tuple[bool, int, int, int, int, int]]) -> Market:
    m = Market()
    for i, (offered, vc, count, begin, hours, bid) in enumerate(postings):
        m.now = i // 2  # some were posted in the same moment
        (m.offer if offered else m.request)(vc, lot(count, begin + 1, begin + 1 + hours), bid=bid * HOUR)
    return m


@given(POSTINGS, st.dictionaries(st.integers(1, 5), st.integers(-3, 3)), st.randoms(use_true_random=False))
def test_the_order_of_rows_in_memory_is_nothing(
    postings: list[tuple[bool, int, int, int, int, int]], surplus: dict[int, int], random: Random
) -> None:
    m = market(postings)
    rows, owed = list(m.postings.values()), list(surplus.items())
    random.shuffle(rows)
    random.shuffle(owed)
    for match in (balance_surplus, auction):
        straight = list(settle(m.board, surplus, match, always))
        assert list(settle(Board(rows, (), m.now), dict(owed), match, always)) == straight


@given(POSTINGS, st.dictionaries(st.integers(1, 5), st.integers(-300, 300)))
def test_as_printed(postings: list[tuple[bool, int, int, int, int, int]], surplus: dict[int, int]) -> None:
    """Algorithm 2 line by line, where offers are taken whole: every window and every count is the same."""
    m = market([(offered, vc, 1, 0, 4, 0) for offered, vc, *_ in postings])
    owed = {vc: surplus.get(vc, 0) * HOUR for vc in range(1, 6)}
    expected, left = [], list(m.board.postings.values())
    while (pair := do_matching(left, owed)) is not None:
        expected.append(pair)
    assert settled(m, surplus) == expected


def do_matching(postings: list[Any], surplus: dict[int, int]) -> tuple[int, int] | None:
    tenants = sorted(surplus, key=lambda vc: (-surplus[vc], vc))
    for tenant in tenants:
        for request in [o for o in postings if o.kind == 2 and o.vc == tenant]:
            qualified_offers = [o for o in postings if o.kind == 1 and o.vc != tenant]
            if len(qualified_offers) > 0:
                offer = min(qualified_offers, key=lambda o: (surplus[o.vc], o.vc))
                postings.remove(offer)
                surplus[tenant] -= offer.lot.device_us
                surplus[offer.vc] += offer.lot.device_us
                postings.remove(request)
                return request.id, offer.id
    return None


# ---- what does not fit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("match", [balance_surplus, auction])
def test_where_a_deal_does_not_fit_the_next_candidate_is_tried(match: Match) -> None:
    m = Market()
    first, second = m.offer(C, lot()), m.offer(D, lot())
    a, b = m.request(A, lot()), m.request(B, lot())
    before = (dict(m.postings), dict(m.surplus))

    def not_from_c(deal: Deal) -> str | None:
        return "the cells of C are broken" if deal.giver == C else None

    def not_to_a(deal: Deal) -> str | None:
        return "A has its fill" if deal.taker == A else None

    assert pairs(list(settle(m.board, {}, match, not_from_c))) == [(a, second)]
    assert pairs(list(settle(m.board, {}, match, not_to_a))) == [(b, first)]
    assert list(settle(m.board, {}, match, lambda _: "nothing fits")) == []
    assert (m.postings, m.surplus) == before
    assert m.board.cells_left(m.postings[first], 0, HOUR) == 1


def test_a_deal_that_is_sent_back_is_not_proposed_again_and_changes_nothing() -> None:
    m = Market()
    first, second = m.offer(C, lot()), m.offer(D, lot())
    a, b = m.request(A, lot()), m.request(B, lot())
    deals = settle(m.board, {}, balance_surplus, always)
    assert pairs([next(deals)]) == [(a, first)]
    assert pairs([deals.send("it broke")]) == [(a, second)]
    assert pairs([deals.send(None)]) == [(b, first)], "which stands on the board as before"
    with pytest.raises(StopIteration):
        deals.send(None)


# ---- the auction -----------------------------------------------------------------------------------------------------


def test_the_highest_bid_wins_and_pays_the_second() -> None:
    m = Market()
    m.offer(A, lot(), bid=10 * HOUR)
    for vc, bid in ((B, 50), (C, 70), (D, 60)):
        m.request(vc, lot(), bid=bid * HOUR)
    [deal] = m.settle(auction)
    assert (deal.taker, deal.price) == (C, 60 * HOUR)
    assert (m.hours(A), m.hours(C)) == (60, -60)


def test_nobody_pays_less_than_is_asked_or_gets_it_for_less() -> None:
    m = Market()
    m.offer(A, lot(), bid=65 * HOUR)
    m.request(B, lot(), bid=50 * HOUR)
    assert m.settle(auction) == []
    m.request(C, lot(), bid=70 * HOUR)
    [deal] = m.settle(auction)
    assert (deal.taker, deal.price) == (C, 65 * HOUR)


def test_without_bids_the_price_is_what_the_cells_are() -> None:
    m = Market()
    m.offer(A, lot(4))
    m.request(B, lot(3, 1, 5))
    [deal] = m.settle(auction)
    assert deal.price == deal.lot.device_us == 96 * HOUR


def test_equal_bids_go_to_the_earlier_post() -> None:
    m = Market()
    m.offer(A, lot(), bid=0)
    early, late = m.request(C, lot(), bid=9 * HOUR), m.request(B, lot(), bid=9 * HOUR)
    assert [(deal.request, deal.price) for deal in m.settle(auction)] == [(early, 9 * HOUR)]
    assert m.postings[late].state is PostingState.OPEN


def test_a_window_that_has_begun_is_bid_for_and_asked_for_as_what_is_left_of_it() -> None:
    m = Market()
    m.offer(A, lot(), bid=50 * HOUR)
    m.request(B, lot(), bid=100 * HOUR)
    m.request(C, lot(), bid=80 * HOUR)
    m.until(5)
    [deal] = m.settle(auction)
    assert (deal.taker, deal.lot, deal.price) == (B, lot(1, 5, 10), 40 * HOUR)


def test_alike_lots_all_cost_the_highest_bid_that_went_without() -> None:
    m = Market()
    m.offer(A, lot(2), bid=0)
    for vc, bid in ((B, 50), (C, 70), (D, 60), (5, 40)):
        m.request(vc, lot(), bid=bid * HOUR)
    assert [(deal.taker, deal.price // HOUR) for deal in m.settle(auction)] == [(C, 50), (D, 50)]


def test_a_part_is_asked_its_share() -> None:
    m = Market()
    m.offer(A, lot(4, 0, 10), bid=100 * HOUR)
    m.request(B, lot(2, 5, 10), bid=25 * HOUR)
    m.request(C, lot(2, 0, 5), bid=25 * HOUR - 1)
    assert [(deal.taker, deal.price) for deal in m.settle(auction)] == [(B, 25 * HOUR)]


def test_a_share_of_what_is_asked_is_rounded_up_and_of_what_is_bid_down() -> None:
    m = Market()
    offer = m.offer(A, lot(3), bid=10)
    assert [m.accept(offer, vc, lot(1))[0].price for vc in (B, C, D)] == [4, 4, 4], "together no less than is asked"
    request = m.request(A, lot(1, 0, 3), bid=10)
    m.until(2)
    [given] = m.accept(request, B)
    assert given.price == 3


def test_the_price_is_the_least_bid_that_gets_any_of_the_offers() -> None:
    """With 10 or more B has the cheap one; with less C would have it, and the dear one asks 20."""
    m = Market()
    m.offer(A, lot(), bid=2 * HOUR)
    m.offer(D, lot(), bid=20 * HOUR)
    m.request(B, lot(), bid=30 * HOUR)
    m.request(C, lot(), bid=10 * HOUR)
    assert [(deal.giver, deal.taker, deal.price) for deal in m.settle(auction)] == [(A, B, 10 * HOUR)]


def test_the_price_is_that_of_the_dearer_offer_where_it_is_less_than_the_bid_to_beat() -> None:
    m = Market()
    m.offer(A, lot(), bid=2 * HOUR)
    m.offer(D, lot(), bid=20 * HOUR)
    m.request(B, lot(), bid=30 * HOUR)
    m.request(C, lot(), bid=25 * HOUR)
    assert [(deal.giver, deal.taker, deal.price) for deal in m.settle(auction)] == [(A, B, 20 * HOUR), (D, C, 20 * HOUR)]


def test_a_virtual_cluster_does_not_bid_against_itself() -> None:
    m = Market()
    m.offer(A, lot(), bid=0)
    first, _ = m.request(B, lot(), bid=70 * HOUR), m.request(B, lot(), bid=60 * HOUR)
    m.request(C, lot(), bid=20 * HOUR)
    [deal] = m.settle(auction)
    assert (deal.request, deal.price) == (first, 20 * HOUR)


WINDOWS = st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(1, 3))
"""Count, begin, hours."""


def auctioned(
    offers: Sequence[tuple[tuple[int, int, int], int]], requests: Sequence[tuple[int, int, int]], bids: Sequence[int]
) -> dict[int, int]:
    """Whose request was met, and for how much. Offers are of others."""
    m = Market()
    for i, ((count, begin, hours), ask) in enumerate(offers):
        m.offer(101 + i, lot(count, begin, begin + hours), bid=ask)
    for vc, ((count, begin, hours), bid) in enumerate(zip(requests, bids, strict=True), 1):
        m.request(vc, lot(count, begin, begin + hours), bid=bid)
    return {deal.taker: deal.price for deal in m.settle(auction)}


@given(
    st.lists(st.tuples(WINDOWS, st.integers(0, 12)), min_size=1, max_size=3),
    st.lists(st.tuples(WINDOWS, st.integers(0, 12)), min_size=2, max_size=5),
    st.data(),
)
def test_nobody_gains_by_bidding_anything_but_what_it_is_worth(
    offers: list[tuple[tuple[int, int, int], int]], requests: list[tuple[tuple[int, int, int], int]], data: st.DataObject
) -> None:
    """Every other bid of one bidder, the others' fixed: lots of different sizes and windows, several offers, reserves, ties."""
    lots, worth = [what for what, _ in requests], [value for _, value in requests]
    who = data.draw(st.integers(1, len(requests)))

    def gain(won: dict[int, int]) -> int:
        return worth[who - 1] - won[who] if who in won else 0

    honest = auctioned(offers, lots, worth)
    assert all(price <= worth[vc - 1] for vc, price in honest.items()), "nobody pays more than was bid"
    for bid in range(15):
        other = auctioned(offers, lots, [bid if vc == who else value for vc, value in enumerate(worth, 1)])
        assert gain(other) <= gain(honest), f"virtual cluster {who} gains by bidding {bid} instead of {worth[who - 1]}"


@given(st.integers(0, 12), st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_for_one_lot_it_is_the_second_price_auction(ask: int, bids: list[int]) -> None:
    won = auctioned([((1, 0, 1), ask)], [(1, 0, 1)] * len(bids), bids)
    best = max(bids)
    second = max(sorted(bids)[:-1], default=0)
    assert won == ({bids.index(best) + 1: max(second, ask)} if best >= ask else {})


# ---- a tenant's own choice -------------------------------------------------------------------------------------------


def test_a_tenant_takes_what_it_chooses_whatever_its_surplus() -> None:
    m = Market()
    m.offer(A, lot(), bid=0)
    chosen = m.offer(C, lot(4))
    [exchange] = m.accept(chosen, B)
    assert (exchange.giver, exchange.taker, exchange.lot, exchange.price) == (C, B, lot(4), 320 * HOUR)


def test_a_tenant_takes_a_part_and_the_next_what_is_left() -> None:
    m = Market()
    offer = m.offer(A, lot(4), bid=40 * HOUR)
    [part] = m.accept(offer, B, lot(1, 2, 6))
    [rest] = m.accept(offer, C)
    assert (part.price, rest.lot, rest.price) == (4 * HOUR, lot(3), 30 * HOUR)
    with pytest.raises(FailedPrecondition, match="does not have that"):
        m.accept(offer, D, lot(2, 8, 9))
    [last] = m.accept(offer, D, lot(1, 8, 9))
    assert last.lot == lot(1, 8, 9)
    with pytest.raises(FailedPrecondition, match="no cells"):
        m.accept(offer, D)


def test_a_tenant_gives_what_another_requests_without_having_offered_it() -> None:
    m = Market()
    request = m.request(A, lot(2), bid=90 * HOUR)
    with pytest.raises(FailedPrecondition, match="something else"):
        m.accept(request, B, lot(1))
    [exchange] = m.accept(request, B)
    assert (exchange.giver, exchange.taker, exchange.offer, exchange.price) == (B, A, 0, 90 * HOUR)
    assert m.postings[request].state is PostingState.MATCHED


def test_a_tenant_gives_and_gets_the_swap_of_a_request() -> None:
    m = Market()
    singles = lot(16, level="gpu", devices=1)
    there, back = m.accept(m.request(A, lot(1), swap=singles), B)
    assert (there.giver, back.giver, back.lot) == (B, A, singles)


def test_what_cannot_be_accepted() -> None:
    m = Market()
    offer = m.offer(A, lot())
    with pytest.raises(FailedPrecondition, match="with itself"):
        m.accept(offer, A)
    with pytest.raises(NotFound, match="not on the board"):
        m.accept(99, A)
    m.withdraw(offer)
    with pytest.raises(NotFound, match="not on the board"):
        m.accept(offer, B)


# ---- the proxy -------------------------------------------------------------------------------------------------------

ON = ProxySettings(idle_us=10 * HOUR)


def idle(*history: tuple[int, int]) -> list[Idle]:
    return [Idle("v100", "node", 8, tuple((hour * HOUR, count) for hour, count in history))]


def proposed(m: Market, cells: list[Idle], settings: ProxySettings = ON) -> list[Lot]:
    return propose_idle(m.board, m.exchanges.values(), A, cells, settings)


def test_the_proxy_offers_what_was_idle_all_the_time() -> None:
    m = Market()
    m.until(20)
    assert proposed(m, idle((0, 5), (8, 3), (12, 2), (14, 4))) == [lot(2, 20, 30)]
    assert proposed(m, idle((0, 1), (10, 5))) == [lot(5, 20, 30)], "from the very hour on"
    assert proposed(m, idle((0, 5), (19, 0), (20, 5))) == []
    assert proposed(m, idle((11, 5))) == [], "nobody knows what was before"
    assert proposed(m, idle()) == []


def test_the_proxy_is_off_and_keeps_what_it_is_told_to() -> None:
    m = Market()
    m.until(20)
    assert proposed(m, idle((0, 5)), ProxySettings()) == []
    assert proposed(m, idle((0, 5)), ON._replace(keep=2, window_us=3 * HOUR)) == [lot(3, 20, 23)]


def test_the_proxy_offers_nothing_twice() -> None:
    """5 idle: on offer, then given for later, then given."""
    m = Market()
    m.until(20)
    offer = m.offer(A, lot(2, 25, 40))
    other = m.offer(B, lot(9, 20, 30))
    assert other in m.board.postings
    assert proposed(m, idle((0, 5))) == [lot(3, 20, 30)]
    m.accept(offer, C, lot(1, 26, 30))
    assert proposed(m, idle((0, 5))) == [lot(3, 20, 30)]
    m.withdraw(offer)
    assert proposed(m, idle((0, 5))) == [lot(4, 20, 30)]
    m.until(26)
    assert proposed(m, idle((0, 5), (26, 4))) == [lot(4, 26, 36)], "what is given is in nobody's idle cells"


def test_the_proxy_withdraws_its_own_latest_offers_when_cells_are_needed() -> None:
    m = Market()
    m.until(20)
    mine, first, second = (m.offer(A, lot(2, 20, 40), by_proxy=by) for by in (False, True, True))

    def withdrawn(count: int, settings: ProxySettings = ON) -> list[int]:
        return propose_withdrawals(m.board, m.exchanges.values(), A, idle((0, 6), (20, count)), settings)

    assert withdrawn(6) == []
    assert withdrawn(6, ON._replace(keep=1)) == [second]
    assert withdrawn(4) == [second]
    assert withdrawn(3) == withdrawn(0) == [second, first]
    assert m.postings[mine].state is PostingState.OPEN, "the tenant's own it leaves alone"
    m.accept(second, B)
    m.until(21)
    assert withdrawn(4) == [], "what is given cannot be taken back, and is no more among the idle ones"
