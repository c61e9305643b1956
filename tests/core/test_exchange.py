"""Cell exchange: windows, postings, bookings, and what they add to quotas."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_service.core.errors import FailedPrecondition, PlanRefused
from scheduler_service.core.exchange.quota_timeline import cells_used, granted_cells, in_force, moments
from scheduler_service.core.exchange.transitions import LATE_US
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.exchange import Deal, ExchangeState, Lot, PostingKind, PostingState
from scheduler_service.policies.hived.exchange.arbiter import auction, balance_surplus
from tests.core.market import HOUR, Market, lot

A, B, C = 1, 2, 3


def traded(what: Lot | None = None) -> tuple[Market, int]:
    """A gave cells to B."""
    m = Market()
    m.offer(A, what or lot(4))
    m.request(B, what or lot(4))
    m.settle()
    assert len(m.exchanges) == 1
    return m, 1


# ---- windows ---------------------------------------------------------------------------------------------------------


def test_a_window_takes_from_the_giver_and_adds_to_the_taker_and_ends_by_itself() -> None:
    m, exchange = traded(lot(4, 2, 5))
    assert granted_cells(m.exchanges.values(), m.now) == in_force(m.exchanges.values()) == {}
    m.until(2)
    there = {(A, "v100", "node"): -4, (B, "v100", "node"): 4}
    assert granted_cells(m.exchanges.values(), m.now) == in_force(m.exchanges.values()) == there
    assert granted_cells(m.exchanges.values(), 5 * HOUR - 1) == there
    assert granted_cells(m.exchanges.values(), 5 * HOUR) == {}
    m.until(5)
    assert in_force(m.exchanges.values()) == {}
    assert m.exchanges[exchange].state is ExchangeState.RETURNED
    assert (m.hours(A), m.hours(B)) == (96, -96), "4 nodes of 8 GPUs for 3 hours"


def test_a_window_that_was_slept_through_was_never_given_and_costs_nothing() -> None:
    m, exchange = traded(lot(1, 2, 5))
    m.now = 6 * HOUR
    m.see()
    assert m.exchanges[exchange].state is ExchangeState.RETURNED
    assert m.opened[exchange] == 0
    assert (m.hours(A), m.hours(B)) == (0, 0)


@pytest.mark.parametrize(("asked_back", "had_hours"), [(None, 1), (5, 1), (4, 0)])
def test_what_was_slept_through_of_a_window_is_not_paid_for(asked_back: int | None, had_hours: int) -> None:
    """It opens two hours late, and ends by itself, or in the very moment, or before its time."""
    m, exchange = traded(lot(1, 2, 5))
    m.now = 4 * HOUR
    m.see()
    assert m.exchanges[exchange].state is ExchangeState.ACTIVE
    if asked_back is None:
        m.until(5)
    else:
        m.now = asked_back * HOUR
        for vc in (A, B):
            m.ask_return(exchange, vc)
    assert m.exchanges[exchange].state is ExchangeState.RETURNED
    assert (m.hours(A), m.hours(B)) == (8 * had_hours, -8 * had_hours)


def test_a_window_that_opens_a_moment_late_is_paid_for_in_full() -> None:
    m, exchange = traded(lot(1, 2, 5))
    m.now = 2 * HOUR + LATE_US
    m.see()
    assert m.exchanges[exchange].opened_us == m.now
    m.until(5)
    assert (m.hours(A), m.hours(B)) == (24, -24)


def test_a_check_over_a_window_looks_wherever_quotas_change() -> None:
    m = Market()
    for begin, end in ((0, 4), (2, 9), (20, 30)):
        m.accept(m.offer(A, lot(1, begin, end)), B)
    assert moments(m.exchanges.values(), 1 * HOUR, 20 * HOUR) == [1 * HOUR, 2 * HOUR, 4 * HOUR, 9 * HOUR]
    now = 1 * HOUR
    seen = [
        granted_cells(m.exchanges.values(), at).get((B, "v100", "node"), 0)
        for at in moments(m.exchanges.values(), now, 10 * HOUR)
    ]
    assert seen == [1, 2, 1, 0]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 3)), max_size=6),
    st.integers(0, 9),
    st.integers(1, 9),
)
def test_what_lots_take_together(lots: list[tuple[int, int, int]], begin: int, length: int) -> None:
    """Against counting hour by hour."""
    rows = [lot(count, start, start + hours) for start, hours, count in lots]
    hourly = [sum(n for start, hours, n in lots if start <= at < start + hours) for at in range(begin, begin + length)]
    steps = cells_used(rows, begin * HOUR, (begin + length) * HOUR)
    assert (max(steps), min(steps)) == (max(hourly), min(hourly))


# ---- ending early ----------------------------------------------------------------------------------------------------


def test_both_sides_end_it_early_and_the_rest_of_the_price_goes_back() -> None:
    m, exchange = traded(lot(4, 0, 10))
    m.until(4)
    m.ask_return(exchange, B)
    m.ask_return(exchange, B)
    assert m.exchanges[exchange].state is ExchangeState.ACTIVE, "one side alone does not"
    m.ask_return(exchange, A)
    assert m.exchanges[exchange].state is ExchangeState.RETURNED
    assert in_force(m.exchanges.values()) == granted_cells(m.exchanges.values(), m.now) == {}
    assert (m.hours(A), m.hours(B)) == (128, -128), "4 of 10 hours"
    m.ask_return(exchange, B)
    m.until(20)
    assert m.closed[exchange] == 1


def test_what_has_not_begun_is_given_back_whole() -> None:
    m, exchange = traded(lot(4, 5, 10))
    m.ask_return(exchange, A)
    m.ask_return(exchange, B)
    m.until(20)
    assert m.opened[exchange] == 0
    assert m.surplus == {A: 0, B: 0}


def test_others_have_no_say() -> None:
    m, exchange = traded()
    with pytest.raises(FailedPrecondition, match="between others"):
        m.ask_return(exchange, C)


def test_what_comes_back_early_stands_on_the_board_while_its_offer_does() -> None:
    m, exchange = traded(lot(4, 0, 10))
    m.until(4)
    offer = m.board.postings[1]
    assert m.board.cells_left(offer, 5 * HOUR, 10 * HOUR) == 0
    m.ask_return(exchange, A)
    m.ask_return(exchange, B)
    assert m.board.cells_left(offer, 5 * HOUR, 10 * HOUR) == 4
    m.withdraw(offer.id)
    assert offer.id not in m.board.postings


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_an_offer_of_four_and_a_request_of_three_leave_one() -> None:
    m = Market()
    offer = m.offer(A, lot(4))
    m.request(B, lot(3))
    m.settle()
    assert m.board.cells_left(m.postings[offer], 0, 10 * HOUR) == 1
    two, one = m.request(C, lot(2)), m.request(C, lot(1))
    m.settle()
    assert m.postings[two].state is PostingState.OPEN, "a request is met whole"
    assert m.postings[one].state is PostingState.MATCHED
    assert m.board.cells_left(m.postings[offer], 0, 10 * HOUR) == 0


def test_the_rest_of_a_window_stays_on_the_board() -> None:
    m = Market()
    m.offer(A, lot(4, 0, 10))
    m.request(B, lot(3, 2, 5))
    within, across, before, after = (m.request(C, lot(*what)) for what in ((1, 2, 5), (2, 4, 6), (4, 0, 2), (4, 5, 10)))
    m.settle()
    assert [m.postings[i].state for i in (within, across, before, after)] == [
        PostingState.MATCHED,
        PostingState.OPEN,
        PostingState.MATCHED,
        PostingState.MATCHED,
    ]


def test_what_has_passed_is_neither_given_nor_paid() -> None:
    m = Market()
    m.offer(A, lot(1, 0, 10))
    m.until(6)
    m.request(B, lot(1, 2, 8))
    m.settle()
    assert m.exchanges[1].lot == lot(1, 6, 8)
    assert m.hours(B) == -16


# ---- leaving the board -----------------------------------------------------------------------------------------------


def test_postings_expire_and_what_was_agreed_on_goes_on() -> None:
    m = Market()
    offer, late = m.offer(A, lot(2, 0, 10), until=3), m.request(C, lot(1, 4, 10))
    m.request(B, lot(1, 2, 10))
    m.settle()
    m.until(3)
    assert m.postings[offer].state is PostingState.EXPIRED
    m.settle()
    assert len(m.exchanges) == 2, "the late one had its deal before"
    assert m.postings[late].state is PostingState.MATCHED
    m.until(4)
    assert in_force(m.exchanges.values())[A, "v100", "node"] == -2


def test_a_posting_leaves_with_its_window_and_is_not_matched_after() -> None:
    m = Market()
    offer, request = m.offer(A, lot(1, 0, 5)), m.request(A, lot(1, 0, 6))
    m.until(5)
    assert (m.postings[offer].state, m.postings[request].state) == (PostingState.EXPIRED, PostingState.OPEN)
    m.until(6)
    assert m.postings[request].state is PostingState.EXPIRED
    assert not m.board.postings


def test_a_withdrawn_posting_is_gone_and_only_an_open_one_can_be() -> None:
    m = Market()
    offer = m.offer(A, lot(2))
    request = m.request(B, lot(1))
    m.settle()
    m.withdraw(offer)
    m.withdraw(offer)
    m.request(B, lot(1))
    assert m.settle() == []
    with pytest.raises(FailedPrecondition, match="MATCHED"):
        m.withdraw(request)
    assert granted_cells(m.exchanges.values(), 0) == {(A, "v100", "node"): -1, (B, "v100", "node"): 1}


@pytest.mark.parametrize(
    ("what", "more", "reason"),
    [
        (lot(0), {}, "EMPTY_LOT"),
        (lot(1, 8, 8), {}, "EMPTY_LOT"),
        (lot(1, 6, 9), {"swap": lot(1, 9, 6)}, "EMPTY_LOT"),
        (lot(1, 0, 5), {}, "WINDOW_OVER"),
        (lot(1, 6, 9), {"until": 4}, "WINDOW_OVER"),
        (lot(1, 6, 9), {"swap": lot(1, 4, 9)}, "WINDOW_OVER"),
        (lot(1, 6, 9), {"bid": -1}, "NEGATIVE_BID"),
        (lot(1, 6, 9), {"bid": 1, "swap": lot(1, 6, 9)}, "BID_FOR_SWAP"),
    ],
)
def test_what_could_never_be_met_is_refused(what: Lot, more: dict[str, Any], reason: str) -> None:
    m = Market()
    m.until(5)
    with pytest.raises(FailedPrecondition) as refusal:
        m.offer(A, what, **more)
    assert refusal.value.reason == reason


# ---- swaps -----------------------------------------------------------------------------------------------------------


def test_one_cell_of_eight_for_sixteen_of_one_books_each_sides_own_hours() -> None:
    m = Market()
    singles = lot(16, level="gpu", devices=1)
    offer, request = m.offer(A, lot(1), swap=singles), m.request(B, lot(1), swap=singles)
    m.settle()
    there, back = m.exchanges.values()
    assert (there.giver, there.taker, there.lot, there.price) == (A, B, lot(1), 80 * HOUR)
    assert (back.giver, back.taker, back.lot, back.price) == (B, A, singles, 160 * HOUR)
    assert (there.in_return_for, back.in_return_for) == (0, there.id)
    assert (m.hours(A), m.hours(B)) == (-80, 80), "A gave 8 GPUs and took 16, for 10 hours"
    assert {m.postings[offer].state, m.postings[request].state} == {PostingState.MATCHED}
    m.until(0)
    assert in_force(m.exchanges.values()) == {
        (A, "v100", "node"): -1,
        (B, "v100", "node"): 1,
        (A, "v100", "gpu"): 16,
        (B, "v100", "gpu"): -16,
    }


def test_cells_now_for_more_cells_later() -> None:
    m = Market()
    later = lot(2, 20, 25)
    m.accept(m.offer(A, lot(1, 0, 10), swap=later), B)
    assert (m.hours(A), m.hours(B)) == (0, 0), "as many GPU-hours"
    m.until(22)
    assert in_force(m.exchanges.values()) == {(A, "v100", "node"): 2, (B, "v100", "node"): -2}


def test_a_request_gives_what_is_wanted_and_no_more_than_it_would() -> None:
    m = Market()
    m.offer(A, lot(1), swap=lot(12, level="gpu", devices=1))
    too_few = m.request(B, lot(1), swap=lot(11, level="gpu", devices=1))
    enough = m.request(B, lot(1), swap=lot(16, level="gpu", devices=1))
    for_nothing = m.request(C, lot(1))
    m.settle()
    assert [m.postings[i].state for i in (too_few, enough, for_nothing)] == [
        PostingState.OPEN,
        PostingState.MATCHED,
        PostingState.OPEN,
    ]
    assert m.exchanges[2].lot.count == 12


def test_a_swap_is_of_whole_windows_and_leaves_the_board_when_one_begins() -> None:
    m = Market()
    posting = m.offer(A, lot(1, 5, 10), swap=lot(1, 3, 8))
    m.until(3)
    assert m.postings[posting].state is PostingState.EXPIRED


# ---- deals are checked again -----------------------------------------------------------------------------------------

WRONG: dict[str, Callable[[Deal], Deal]] = {
    "with itself": lambda d: d._replace(taker=A),
    "no posting": lambda d: d._replace(offer=0, request=0),
    "less than nothing": lambda d: d._replace(price=-1),
    "no cells": lambda d: d._replace(lot=with_changes(d.lot, count=0)),
    "in the past": lambda d: d._replace(lot=with_changes(d.lot, begin_us=HOUR)),
    "no open offer of virtual cluster 3": lambda d: d._replace(giver=C),
    "posting 2 is no open offer": lambda d: d._replace(offer=2),
    "no open request of virtual cluster 3": lambda d: d._replace(taker=C),
    "does not have that": lambda d: d._replace(lot=with_changes(d.lot, count=5), request=0),
    "wants something else": lambda d: d._replace(lot=with_changes(d.lot, count=2)),
    "given in return": lambda d: d._replace(swap=lot(1, 3, 4)),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_deal_that_is_not_on_the_board_is_refused(why: str) -> None:
    m = Market()
    offer, request = m.offer(A, lot(4)), m.request(B, lot(3))
    m.until(2)
    deal = m.board.deal(m.postings[request], m.postings[offer])
    assert m.board.why_not(deal) is None
    with pytest.raises(PlanRefused, match=why):
        m.make(WRONG[why](deal))
    assert not m.exchanges


def test_a_swap_has_no_other_price() -> None:
    m = Market()
    offer, request = m.offer(A, lot(1), swap=lot(2)), m.request(B, lot(1), swap=lot(2))
    deal = m.board.deal(m.postings[request], m.postings[offer])
    with pytest.raises(PlanRefused, match="booked as what they are"):
        m.make(deal._replace(price=0))


def test_a_deal_is_made_once() -> None:
    m = Market()
    offer, request = m.offer(A, lot(4)), m.request(B, lot(2))
    deal = m.board.deal(m.postings[request], m.postings[offer])
    m.make(deal)
    with pytest.raises(PlanRefused, match="no open request"):
        m.make(deal)


# ---- whatever happens ------------------------------------------------------------------------------------------------

LOTS = st.builds(
    lambda level, count, begin, hours: lot(count, begin, begin + hours, level=level, devices=8 if level == "node" else 1),
    st.sampled_from(("node", "gpu")),
    st.integers(1, 4),
    st.integers(0, 12),
    st.integers(1, 8),
)
VCS = st.integers(1, 4)
POSTS = st.tuples(
    st.sampled_from(PostingKind),
    VCS,
    LOTS,
    st.none() | st.integers(0, 300 * HOUR),
    st.sampled_from((0, 0, 0, 1)),
    st.integers(1, 20),
)
ACTS = (
    st.tuples(st.just("post"), POSTS)
    | st.tuples(st.just("settle"), st.sampled_from((balance_surplus, auction)))
    | st.tuples(st.sampled_from(("accept", "return", "withdraw")), st.tuples(st.integers(0, 30), VCS))
    | st.tuples(st.just("pass"), st.integers(1, 6))
    | st.tuples(st.just("sleep"), st.integers(1, 6))
)


def act(m: Market, what: str, how: Any) -> None:
    hour = m.now // HOUR
    match what, how:
        case "post", (kind, vc, cells, bid, swaps, until):
            shift = hour * HOUR
            cells = with_changes(cells, begin_us=cells.begin_us + shift, end_us=cells.end_us + shift)
            swap = with_changes(cells, level="gpu", count=2 * cells.count * cells.devices, devices=1) if swaps else None
            m._post(kind, vc, cells, until=hour + until, bid=None if swaps else bid, swap=swap)
        case "settle", policy:
            m.settle(policy)
        case "accept", (number, vc):
            postings = [o for o in m.board.postings.values() if o.vc != vc]
            posting = postings[number % len(postings)] if postings else None
            if posting and m.board.cells_left(posting, m.board.wanted_lot(posting).begin_us, posting.lot.end_us):
                m.accept(posting.id, vc)
        case "return", (number, vc):
            if mine := [x.id for x in m.exchanges.values() if vc in (x.giver, x.taker)]:
                m.ask_return(mine[number % len(mine)], vc)
        case "withdraw", (number, _):
            if m.board.postings:
                m.withdraw(list(m.board.postings)[number % len(m.board.postings)])
        case "pass", hours:
            m.until(hour + hours)
        case "sleep", hours:  # and see to what was due only then
            m.now += hours * HOUR
            m.see()


def _check_givers(m: Market, at: int) -> None:
    """At this time nothing is given of an offer, or by a giver, but what was offered or agreed to."""
    of: Counter[int] = Counter()
    by: Counter[tuple[int, str, str]] = Counter()
    for x in m.exchanges.values():
        if x.lot.begin_us <= at < x.lot.end_us and x.state is not ExchangeState.RETURNED:
            of[x.offer] += x.lot.count
            by[x.giver, x.lot.pool, x.lot.level] += 0 if x.offer else x.lot.count
    for posting in m.postings.values():
        if posting.kind is PostingKind.OFFER:
            assert of[posting.id] <= (posting.lot.count if posting.lot.begin_us <= at < posting.lot.end_us else 0)
            by[posting.vc, posting.lot.pool, posting.lot.level] += min(of[posting.id], posting.lot.count)
    assert all(-count <= by[key] for key, count in granted_cells(m.exchanges.values(), at).items())


@given(st.lists(ACTS, max_size=30))
def test_the_books_balance_and_nobody_gives_more_than_was_offered(acts: list[tuple[str, Any]]) -> None:
    m = Market()
    for what, how in acts:
        act(m, what, how)
        m.see()
        assert sum(m.surplus.values()) == 0
        assert in_force(m.exchanges.values()) == granted_cells(m.exchanges.values(), m.now)
        for at in range(m.now // HOUR, m.now // HOUR + 25):
            _check_givers(m, at * HOUR)
    met = Counter(x.request for x in m.exchanges.values() if x.request)
    assert all(count == 1 and m.postings[request].state is PostingState.MATCHED for request, count in met.items())
    m.until(10_000)
    for x in m.exchanges.values():
        assert m.closed[x.id] == 1
        assert m.opened[x.id] == (x.opened_us is not None)
        paid = sum(entry.device_us for entry in m.entries.values() if entry.exchange == x.id and entry.vc == x.giver)
        assert 0 <= paid <= x.price
        assert m.opened[x.id] or not paid, "what was never given is not paid for"
        assert x.returned_us is not None
        late = x.opened_us is not None and x.opened_us - x.lot.begin_us > LATE_US
        assert paid == x.price or not m.opened[x.id] or late or x.returned_us < x.lot.end_us
    assert in_force(m.exchanges.values()) == {}
    assert all(posting.state is not PostingState.OPEN for posting in m.postings.values())
