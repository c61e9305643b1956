"""Postings on the board, in the engine: who meets whose, what is refused, and what exchanges mean for jobs and quotas."""

from random import Random
from typing import Any

import pytest

from scheduler_service.core.enact import enact
from scheduler_service.core.engine import step
from scheduler_service.core.errors import Broken
from scheduler_service.core.exchange.book import Board
from scheduler_service.core.invariants import check
from scheduler_service.core.messages import (
    AcceptRequested,
    Agree,
    Cells,
    FaultsSeen,
    PostRequested,
    ReturnRequested,
    WithdrawRequested,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.settings import PoolPlan
from scheduler_service.core.model.tenants.exchange import Deal, ExchangeState, Lot, PostingKind, PostingState
from scheduler_service.policies.hived.exchange.arbiter import Fits, Match, Surplus, auction, balance_surplus
from scheduler_service.policies.hived.policy import cells
from tests.core.driver import Driver
from tests.policies.trading import FOURS, HOUR, Traders, at, many, reason, two

# ---- a tenant's own choice -------------------------------------------------------------------------------------------


def test_tenants_choose_offers_and_parts_of_them_and_meet_requests() -> None:
    t = many(4, 1, 1)
    offer = t.offer("A", 3)
    [part] = t.take("B", offer, count=1, begin_us=at(2), end_us=at(6))
    assert t.exchanges[part].lot == Lot(FOURS, "node", 1, at(2), at(6), 4)
    [rest] = t.take("C", offer)
    assert t.exchanges[rest].lot.count == 2, "what is left throughout the window"
    wanted = t.want("C", 1, end=3)
    t.take("A", wanted)
    assert t.postings[wanted].state is PostingState.MATCHED
    assert reason(t.taken_by("B", offer, count=2)) == "NO_DEAL"
    backwards = t.taken_by("B", offer, begin_us=at(6), end_us=at(2))
    assert (reason(backwards), str(backwards)) == ("NO_DEAL", "there are no cells in it, or it begins in the past")
    assert reason(t.taken_by("A", offer)) == "NO_DEAL"
    assert reason(t.taken_by("B", 99)) == "NO_OPEN_POSTING"
    t.until(2)
    assert [t.owns(name) for name in "ABC"] == [0, 2, 4]


def test_what_was_asked_twice_is_done_once() -> None:
    t = many(2, 1)
    first = t.offer("A", 2, request_id="r1", bid=5)
    t.now += HOUR
    assert t.offer("A", 2, request_id="r1", bid=5) == first, "from now on, as it was when it came first"
    assert reason(t.posted(PostingKind.OFFER, "A", 1, 0, 10, request_id="r1", bid=5)) == "REQUEST_ID_REUSED"
    made = t.take("B", first, request_id="a1", count=1)
    assert t.take("B", first, request_id="a1", count=1) == made
    assert t.owns("B") == 2
    for part in ({"count": 2}, {"begin_us": at(3)}, {"end_us": at(9)}):
        assert reason(t.taken_by("B", first, request_id="a1", **part)) == "REQUEST_ID_REUSED", "another part of it"
    other = t.offer("A")
    assert reason(t.taken_by("B", other, request_id="a1")) == "REQUEST_ID_REUSED"
    swap = Cells(FOURS, "node", 1, at(20), at(21))
    both = t.take("B", t.offer("A", begin=2, end=3, swap=swap), request_id="a2")
    assert len(both) == 2
    assert t.take("B", t.exchanges[both[0]].offer, request_id="a2") == both


def test_refusals_name_what_is_wrong() -> None:
    t = many(2, 1)
    offered = t.offer("A")
    wrong: list[tuple[Any, str]] = [
        (t.posted(PostingKind.OFFER, "X", 1, 0, 10), "NO_SUCH_VC"),
        (t.posted(PostingKind.OFFER, "A", 1, 0, 10, pool="p"), "NO_SUCH_POOL"),
        (t.posted(PostingKind.OFFER, "A", 1, 0, 10, level="rack"), "NO_SUCH_LEVEL"),
        (t.posted(PostingKind.OFFER, "A", 3, 0, 10), "NOT_OWNED"),
        (t.posted(PostingKind.OFFER, "A", 1, 0, 10, level="device"), "NOT_OWNED"),
        (t.posted(PostingKind.OFFER, "A", 0, 0, 10), "EMPTY_LOT"),
        (t.posted(PostingKind.OFFER, "A", 1, -3, -1), "WINDOW_OVER"),
        (t.posted(PostingKind.REQUEST, "A", 1, 0, 10, bid=-1), "NEGATIVE_BID"),
        (t.posted(PostingKind.OFFER, "A", 1, 0, 10, swap=Cells(FOURS, "node", 1, at(3), at(9))), "WINDOW_OVER"),
        (t.withdraw(offered, "B"), "NOT_YOURS"),
        (t.withdraw(77), "NO_OPEN_POSTING"),
        (t.ask_back(5, "A"), "NO_LIVE_EXCHANGE"),
    ]
    assert [reason(answer) for answer, _ in wrong] == [expected for _, expected in wrong]
    assert wrong[3][0].metadata == {"vc": "A", "pool": FOURS, "level": "node", "owned": "2"}


def test_what_a_site_without_virtual_clusters_says() -> None:
    what = Cells(FOURS, "node", 1, 0, at(1))
    asked = [
        PostRequested("A", "", PostingKind.OFFER, what),
        WithdrawRequested(1),
        AcceptRequested("A", "", 1),
        ReturnRequested(1),
    ]
    assert {reason(Driver().reply(event)) for event in asked} == {"NO_VIRTUAL_CLUSTERS"}


# ---- the board -------------------------------------------------------------------------------------------------------


def test_withdrawn_and_expired_postings_are_not_met() -> None:
    t = two()
    gone = t.offer("A")
    t.withdraw(gone, "A")
    late = t.offer("A", expires_us=at(1))
    t.until(1)
    t.want("B")
    assert not t.exchanges
    assert [t.postings[posting].state for posting in (gone, late)] == [PostingState.WITHDRAWN, PostingState.EXPIRED]
    assert list(t.state.postings.rows) == [3], "what is off the board leaves memory"
    t.offer("A")
    assert len(t.exchanges) == 1


def test_the_arbiter_looks_again_when_a_window_begins() -> None:
    """The rest of a request may be covered by an offer that begins later than it."""
    t = two()
    wanted = t.want("B", end=8)
    t.offer("A", begin=2, end=9)
    assert not t.exchanges
    t.until(2)
    assert t.exchanges[1].lot.begin_us == at(2)
    assert t.postings[wanted].state is PostingState.MATCHED


@pytest.mark.parametrize(("match", "served"), [(balance_surplus, "B"), (auction, "C")])
def test_the_site_chooses_who_is_served_first(match: Match, served: str) -> None:
    """B has given, C has taken; C was here first. An auction goes by bids, and among equals by the earlier post."""
    t = many(1, 1, 1)
    t.take("C", t.offer("B", end=1))
    t.until(1)
    wanted = {"C": t.want("C", end=5), "B": t.want("B", end=5)}
    t.policy = cells(match)
    t.offer("A", end=5)
    assert [name for name, posting in wanted.items() if t.postings[posting].state is PostingState.MATCHED] == [served]


def test_the_board_is_left_alone_while_nothing_changes_on_it() -> None:
    asked: list[int] = []

    def counting(board: Board, _surplus: Surplus, _fits: Fits) -> Deal | None:
        asked.append(len(board.postings))
        return None

    t = many(2, 1, match=counting)
    t.offer("A")
    t.want("B", 3)
    assert asked[-1] == 2
    before = len(asked)
    t.settles = False  # it would undo a step, after which everything is looked at again
    for _ in range(5):
        t.state.pending.market = False
        t.state.pending.policies = True
        step(t.state, (), t.now, Random(0), t.policy)
        t.state.adopt()
    assert len(asked) == before
    t.want("B", 2)
    assert len(asked) > before


# ---- what would not hold ---------------------------------------------------------------------------------------------


def test_nobody_gives_the_same_cell_twice() -> None:
    t = many(1, 1, 1)
    first, second = t.offer("A", begin=0, end=6), t.offer("A", begin=4, end=8)
    t.take("B", first)
    refused = t.taken_by("C", second)
    assert reason(refused) == "NO_DEAL"
    assert "owns 0 node cells" in str(refused)
    assert t.take("C", second, begin_us=at(6))


def test_a_plan_that_gives_what_nobody_owns_is_refused_and_leaves_nothing() -> None:
    t = many(1, 1)
    offer = t.offer("A", begin=1, end=5)
    t.take("B", t.offer("A", begin=2, end=3))
    before = t.state.snapshot()
    lot = t.postings[offer].lot
    for deal in (Deal(1, 2, lot, lot.device_us, offer), Deal(1, 9, lot, lot.device_us, offer)):
        assert enact(t.state, (Agree(deal),), t.now) is not None
    assert t.state.snapshot() == before


def test_without_the_check_a_promise_to_others_would_break() -> None:
    """What the check is for: Eqn 2, and the invariants that would tell."""
    t = many(1, 1, 1)
    t.take("B", t.offer("A"))
    row = t.state.exchanges.rows[1]
    t.state.put(t.state.exchanges, 1, with_changes(row, lot=with_changes(row.lot, count=2)))
    with pytest.raises(Broken):
        check(t.state)
    pools = t.state.pools
    assert pools is not None
    assert not pools.pools[FOURS].holds()
    t.state.undo()
    check(t.state)


def test_what_was_taken_may_be_given_on_and_then_is_not_returned_early() -> None:
    t = many(1, 1, 1)
    [first] = t.take("B", t.offer("A"))
    t.take("C", t.offer("B", 2, begin=2, end=6))
    t.until(3)
    assert [t.owns(name) for name in "ABC"] == [0, 0, 3]
    t.ask_back(first, "A")
    assert reason(t.ask_back(first, "B")) == "GIVEN_ON"
    assert t.exchanges[first].state is ExchangeState.ACTIVE
    t.until(6)
    t.ask_back(first, "B")
    assert [t.owns(name) for name in "ABC"] == [1, 1, 1]


# ---- jobs and quotas -------------------------------------------------------------------------------------------------


def test_a_job_that_fits_in_what_was_agreed_is_not_refused() -> None:
    t = many(2, 1)
    assert reason(t.asked("B", 4, 4)) == "NEVER_IN_QUOTA"
    t.take("B", t.offer("A", begin=3, end=6))
    gang = t.ask("B", 4, 4)
    assert t.job(gang).detail == "virtual cluster B owns what it needs at other times (exchanges)"
    single = t.ask("B", 1)
    assert t.guaranteed(single), "it holds nobody up meanwhile"
    t.end(single)
    t.until(3)
    assert t.guaranteed(gang)
    assert reason(t.asked("B", 4, 4, 4)) == "NEVER_IN_QUOTA"


def test_what_a_virtual_cluster_owns_in_no_quota_of_its_own() -> None:
    """It takes cells in a pool in which it owns none."""
    t = Traders(2, PoolPlan("x", ("n1",)), PoolPlan("y", ("n2",)))
    t.vc("A", ("x", "node", 1))
    t.vc("B", ("y", "node", 1))
    t.take("B", t.offer("A", pool="x"))
    assert t.at(t.ask("B", 4, pool="x")) == ["n1[0..3]"]


def test_faulty_cells_change_hands_like_others() -> None:
    """Quotas are of cells, whatever their health: what is missing is a reported state, and no reason to break a deal."""
    t = many(2, 1)
    t.ask("A", 4)
    t.step(FaultsSeen("n3", "a", tuple((index, "XID 79") for index in range(4))))
    t.take("B", t.offer("A", 2))
    assert [t.owns(name) for name in "AB"] == [0, 3]
    t.until(10)
    assert [t.owns(name) for name in "AB"] == [2, 1]
