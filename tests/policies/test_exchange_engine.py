"""Cell exchange in the engine: what virtual clusters own, and what becomes of jobs, as windows open and close."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from scheduler_service.core.board import Board, Deal
from scheduler_service.core.enact import enact
from scheduler_service.core.engine import step
from scheduler_service.core.errors import Broken
from scheduler_service.core.exchange import ExchangeState, Lot, OrderKind, OrderState
from scheduler_service.core.invariants import check
from scheduler_service.core.job import JobState, Reason
from scheduler_service.core.messages import (
    AcceptRequested,
    Agree,
    Cells,
    FaultsSeen,
    NodeSeen,
    OrderPosted,
    ReturnRequested,
    VcRequested,
    WithdrawRequested,
)
from scheduler_service.core.pools import PoolPlan
from scheduler_service.core.rows import changed
from scheduler_service.core.state import State
from scheduler_service.core.vc import Quota, VcPolicy
from scheduler_service.policies.cells.policy import cells
from scheduler_service.policies.exchange import Fits, Match, Surplus, auction, balanced
from tests.core.driver import Driver
from tests.policies.tenants import OVERFLOW, inventory
from tests.policies.trading import FOURS, HOUR, Traders, at, reason

NODE = (FOURS, "node", 1)


def two(**more: Any) -> Traders:
    """A and B own a node of four devices each."""
    t = Traders(2, **more)
    t.vc("A", NODE)
    t.vc("B", NODE)
    return t


def many(*owned: int, match: Match | None = None) -> Traders:
    """A, B, ... own so many nodes; deals are made by hand unless there is an arbiter."""
    t = Traders(sum(owned), match=match)
    for name, count in zip("ABCDE", owned, strict=False):
        t.vc(name, (FOURS, "node", count))
    return t


# ---- a window --------------------------------------------------------------------------------------------------------


def test_the_taker_binds_a_cell_that_it_did_not_own_and_the_giver_cannot() -> None:
    t = two()
    first, second, third = t.ask("B", 4), t.ask("B", 4), t.ask("A", 1)
    assert t.guaranteed(first)
    assert t.waits(second) is Reason.BEYOND_QUOTA
    t.end(third)
    t.offer("A")
    assert t.waits(second) is Reason.BEYOND_QUOTA
    t.want("B")
    assert t.guaranteed(second)
    assert sorted(t.owned().values()) == ["B", "B"]
    assert (t.owns("A"), t.owns("B")) == (0, 2)
    mine = t.ask("A", 1)
    assert t.job(mine).detail == "virtual cluster A owns what it needs at other times (exchanges)"
    assert t.hours() == {"A": 40, "B": -40}


def test_at_its_end_the_cells_are_the_givers_and_jobs_on_them_are_guests() -> None:
    t = two()
    t.offer("A")
    t.want("B")
    jobs = [t.ask("B", 4), t.ask("B", 4)]
    mine = t.ask("A", 4)
    t.until(9.9)
    assert [t.guaranteed(job) for job in jobs] == [True, True]
    t.until(10)
    assert sorted(t.guaranteed(job) for job in jobs) == [False, True]
    assert t.waits(mine) is Reason.WAITING_FOR_VICTIMS
    guest = next(job for job in jobs if not t.guaranteed(job))
    assert t.job(guest).state is JobState.STOPPING
    t.leave(guest)
    assert t.guaranteed(mine)
    assert t.waits(guest) is Reason.RECLAIMED
    assert t.exchanges[1].state is ExchangeState.RETURNED
    assert t.hours() == {"A": 40, "B": -40}
    assert not t.state.exchanges.rows, "what is over leaves memory"


def test_a_job_on_a_cell_that_returns_runs_on_where_nobody_needs_it() -> None:
    t = two()
    t.offer("A")
    t.want("B")
    jobs = [t.ask("B", 4), t.ask("B", 4)]
    t.until(11)
    assert t.states(*jobs) == [JobState.RUNNING, JobState.RUNNING]
    assert sorted(t.guaranteed(job) for job in jobs) == [False, True]


def test_a_job_may_rather_leave_when_its_cells_return() -> None:
    t = two()
    t.offer("A")
    t.want("B")
    jobs = [t.ask("B", 4, vacates=True, grace=7), t.ask("B", 4, vacates=True, grace=7)]
    t.until(10)
    stopping = [job for job in jobs if t.job(job).state is JobState.STOPPING]
    assert len(stopping) == 1
    [run] = t.state.runs_of(stopping[0])
    assert run.stop_grace_us == 7_000_000
    t.leave(*stopping)
    assert t.waits(*stopping) is Reason.RECLAIMED
    t.end(*(job for job in jobs if job not in stopping))
    assert t.guaranteed(*stopping), "it waited for its own cells"


def test_when_a_window_opens_the_givers_last_cells_go_and_its_jobs_stay_as_guests() -> None:
    t = many(2, 1, match=auction())
    jobs = [t.ask("A", 4), t.ask("A", 4)]
    t.offer("A", begin=2, end=6)
    t.want("B", begin=2, end=6)
    assert [t.guaranteed(job) for job in jobs] == [True, True], "agreed is not yet given"
    t.until(2)
    assert sorted(t.guaranteed(job) for job in jobs) == [False, True]
    t.ask("B", 4)
    other = t.ask("B", 4)
    assert t.waits(other) is Reason.WAITING_FOR_VICTIMS


def test_a_guest_is_promoted_where_it_is_when_a_window_opens() -> None:
    t = two()
    t.ask("B", 4)
    guest = t.ask("B", 4, guarantee=OVERFLOW)
    where = t.at(guest)
    assert not t.guaranteed(guest)
    t.offer("A", begin=1, end=3)
    t.want("B", begin=1, end=3)
    t.until(1)
    assert t.guaranteed(guest)
    assert t.at(guest) == where
    t.until(3)
    assert not t.guaranteed(guest)


def test_a_window_that_was_slept_through_was_never_given() -> None:
    t = two()
    t.offer("A", begin=2, end=4)
    t.want("B", begin=2, end=4)
    assert t.hours() == {"A": 8, "B": -8}
    t.now = at(5)
    t.step()
    assert t.exchanges[1].opened_us is None
    assert t.hours() == {"A": 0, "B": 0}


def test_a_window_does_not_open_for_cells_that_are_not_the_givers_any_more() -> None:
    """No request can bring this about; somebody has changed a row."""
    t = many(2, 1)
    t.take("B", t.offer("A", 2, begin=2, end=4))
    t.until(1)
    t.state.put(t.state.vcs, 1, changed(t.state.vcs.rows[1], quotas=(Quota(*NODE),)))
    t.state.adopt()
    t.until(2)
    assert t.exchanges[1].state is ExchangeState.RETURNED
    assert (t.owns("A"), t.owns("B")) == (1, 1)
    assert t.hours() == {"A": 0, "B": 0}


def test_cells_go_from_hand_to_hand_without_anybody_losing_what_it_has() -> None:
    """B takes a cell of A's in two windows one after the other, and gives one to C meanwhile: it has one at all times."""
    t = many(1, 1, 1)
    t.take("B", t.offer("A", begin=0, end=4))
    t.take("B", t.offer("A", begin=4, end=8))
    t.take("C", t.offer("B", begin=2, end=8))
    t.until(2)
    kept = t.ask("B", 4)
    t.ask("C", 4)
    t.ask("C", 4)
    t.until(4)
    assert t.guaranteed(kept), "one window closed and the next opened in the same moment"
    t.until(8)
    assert t.guaranteed(kept)
    assert [t.owns(name) for name in "ABC"] == [1, 1, 1]


# ---- swaps -----------------------------------------------------------------------------------------------------------


def test_a_node_for_single_devices() -> None:
    t = Traders(4)
    t.vc("A", (FOURS, "node", 2))
    t.vc("B", (FOURS, "device", 8))
    jobs = [t.ask("B", 1) for _ in range(8)]
    wide = t.refused("B", 4)
    assert wide.reason == "NEVER_IN_QUOTA"
    t.end(*jobs)
    singles = Cells(FOURS, "device", 8, at(1), at(5))
    t.offer("A", begin=1, end=5, swap=singles)
    t.want("B", begin=1, end=5, swap=singles)
    t.until(1)
    assert (t.owns("A"), t.owns("A", "device"), t.owns("B"), t.owns("B", "device")) == (1, 8, 1, 0)
    wide_one = t.ask("B", 4)
    assert t.guaranteed(wide_one)
    assert all(t.guaranteed(t.ask("A", 1)) for _ in range(12))
    assert t.hours() == {"A": 16 - 32, "B": 32 - 16}, "each side is booked as what it is"
    t.until(5)
    assert (t.owns("A"), t.owns("B", "device")) == (2, 8)
    assert not t.guaranteed(wide_one)


def test_cells_now_for_cells_later() -> None:
    t = two()
    later = Cells(FOURS, "node", 1, at(10), at(14))
    t.take("B", t.offer("A", begin=1, end=5, swap=later))
    owned = []
    for hour in (0, 1, 5, 10, 14):
        t.until(hour)
        owned.append((t.owns("A"), t.owns("B")))
    assert owned == [(1, 1), (0, 2), (1, 1), (2, 0), (1, 1)]


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
    assert t.orders[wanted].state is OrderState.MATCHED
    assert reason(t.taken_by("B", offer, count=2)) == "NO_DEAL"
    backwards = t.taken_by("B", offer, begin_us=at(6), end_us=at(2))
    assert (reason(backwards), str(backwards)) == ("NO_DEAL", "there are no cells in it, or it begins in the past")
    assert reason(t.taken_by("A", offer)) == "NO_DEAL"
    assert reason(t.taken_by("B", 99)) == "NO_OPEN_ORDER"
    t.until(2)
    assert [t.owns(name) for name in "ABC"] == [0, 2, 4]


def test_what_was_asked_twice_is_done_once() -> None:
    t = many(2, 1)
    first = t.offer("A", 2, request_id="r1", bid=5)
    t.now += HOUR
    assert t.offer("A", 2, request_id="r1", bid=5) == first, "from now on, as it was when it came first"
    assert reason(t.posted(OrderKind.OFFER, "A", 1, 0, 10, request_id="r1", bid=5)) == "REQUEST_ID_REUSED"
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
        (t.posted(OrderKind.OFFER, "X", 1, 0, 10), "NO_SUCH_VC"),
        (t.posted(OrderKind.OFFER, "A", 1, 0, 10, pool="p"), "NO_SUCH_POOL"),
        (t.posted(OrderKind.OFFER, "A", 1, 0, 10, level="rack"), "NO_SUCH_LEVEL"),
        (t.posted(OrderKind.OFFER, "A", 3, 0, 10), "NOT_OWNED"),
        (t.posted(OrderKind.OFFER, "A", 1, 0, 10, level="device"), "NOT_OWNED"),
        (t.posted(OrderKind.OFFER, "A", 0, 0, 10), "EMPTY_LOT"),
        (t.posted(OrderKind.OFFER, "A", 1, -3, -1), "WINDOW_OVER"),
        (t.posted(OrderKind.REQUEST, "A", 1, 0, 10, bid=-1), "NEGATIVE_BID"),
        (t.posted(OrderKind.OFFER, "A", 1, 0, 10, swap=Cells(FOURS, "node", 1, at(3), at(9))), "WINDOW_OVER"),
        (t.withdraw(offered, "B"), "NOT_YOURS"),
        (t.withdraw(77), "NO_OPEN_ORDER"),
        (t.ask_back(5, "A"), "NO_LIVE_EXCHANGE"),
    ]
    assert [reason(answer) for answer, _ in wrong] == [expected for _, expected in wrong]
    assert wrong[3][0].metadata == {"vc": "A", "pool": FOURS, "level": "node", "owned": "2"}


def test_what_a_site_without_virtual_clusters_says() -> None:
    what = Cells(FOURS, "node", 1, 0, at(1))
    asked = [
        OrderPosted("A", "", OrderKind.OFFER, what),
        WithdrawRequested(1),
        AcceptRequested("A", "", 1),
        ReturnRequested(1),
    ]
    assert {reason(Driver().reply(event)) for event in asked} == {"NO_VIRTUAL_CLUSTERS"}


# ---- the board -------------------------------------------------------------------------------------------------------


def test_withdrawn_and_expired_orders_are_not_met() -> None:
    t = two()
    gone = t.offer("A")
    t.withdraw(gone, "A")
    late = t.offer("A", expires_us=at(1))
    t.until(1)
    t.want("B")
    assert not t.exchanges
    assert [t.orders[order].state for order in (gone, late)] == [OrderState.WITHDRAWN, OrderState.EXPIRED]
    assert list(t.state.orders.rows) == [3], "what is off the board leaves memory"
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
    assert t.orders[wanted].state is OrderState.MATCHED


@pytest.mark.parametrize(("match", "served"), [(balanced, "B"), (auction(), "C")])
def test_the_site_chooses_who_is_served_first(match: Match, served: str) -> None:
    """B has given, C has taken; C was here first. An auction goes by bids, and among equals by the earlier post."""
    t = many(1, 1, 1)
    t.take("C", t.offer("B", end=1))
    t.until(1)
    wanted = {"C": t.want("C", end=5), "B": t.want("B", end=5)}
    t.policy = cells(match)
    t.offer("A", end=5)
    assert [name for name, order in wanted.items() if t.orders[order].state is OrderState.MATCHED] == [served]


def test_the_board_is_left_alone_while_nothing_changes_on_it() -> None:
    asked: list[int] = []

    def counting(board: Board, _surplus: Surplus, _fits: Fits) -> Deal | None:
        asked.append(len(board.orders))
        return None

    t = many(2, 1, match=counting)
    t.offer("A")
    t.want("B", 3)
    assert asked[-1] == 2
    before = len(asked)
    t.settles = False  # it would undo a step, after which everything is looked at again
    for _ in range(5):
        t.state.board_changed = False
        t.state.unsettled = True
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
    lot = t.orders[offer].lot
    for deal in (Deal(1, 2, lot, lot.device_us, offer), Deal(1, 9, lot, lot.device_us, offer)):
        assert enact(t.state, (Agree(deal),), t.now) is not None
    assert t.state.snapshot() == before


def test_without_the_check_a_promise_to_others_would_break() -> None:
    """What the check is for: Eqn 2, and the invariants that would tell."""
    t = many(1, 1, 1)
    t.take("B", t.offer("A"))
    row = t.state.exchanges.rows[1]
    t.state.put(t.state.exchanges, 1, changed(row, lot=changed(row.lot, count=2)))
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


# ---- ending early ----------------------------------------------------------------------------------------------------


def test_both_sides_end_it_early() -> None:
    t = two()
    [exchange] = t.take("B", t.offer("A", end=10))
    jobs = [t.ask("B", 4), t.ask("B", 4)]
    t.until(4)
    t.ask_back(exchange, "A")
    t.ask_back(exchange, "A")
    assert t.owns("B") == 2
    t.ask_back(exchange, "B")
    assert (t.owns("A"), t.owns("B")) == (1, 1)
    assert sorted(t.guaranteed(job) for job in jobs) == [False, True]
    assert t.hours() == {"A": 16, "B": -16}
    assert reason(t.ask_back(exchange, "B")) == "NO_LIVE_EXCHANGE"


def test_the_site_ends_what_it_likes_and_what_hangs_on_it() -> None:
    t = many(1, 1, 1)
    [first] = t.take("B", t.offer("A"))
    [second] = t.take("C", t.offer("B", 2))
    t.until(5)
    t.ask_back(first)
    assert {t.exchanges[i].state for i in (first, second)} == {ExchangeState.RETURNED}
    assert [t.owns(name) for name in "ABC"] == [1, 1, 1]
    assert t.hours() == {"A": 20, "B": 20, "C": -40}


def test_a_smaller_quota_ends_what_can_be_given_no_more() -> None:
    t = many(3, 1, 1)
    [early] = t.take("B", t.offer("A", 1))
    [late] = t.take("C", t.offer("A", 1, begin=2, end=8))
    [other] = t.take("C", t.offer("A", 1, begin=20, end=22))
    jobs = [t.ask("A", 4), t.ask("B", 4), t.ask("B", 4)]
    t.change("A", (FOURS, "node", 1))
    assert t.exchanges[late].state is ExchangeState.RETURNED, "the latest agreed of those that overlap"
    assert {t.exchanges[i].state for i in (early, other)} == {ExchangeState.ACTIVE, ExchangeState.MATCHED}
    assert [t.guaranteed(job) for job in jobs] == [False, True, True]
    assert [t.owns(name) for name in "ABC"] == [0, 2, 1]
    t.until(23)
    assert [t.owns(name) for name in "ABC"] == [1, 1, 1]


def test_who_is_deleted_leaves_the_market_and_stays_in_the_ledger() -> None:
    t = many(2, 1, 1)
    t.take("B", t.offer("A", 1, end=10))
    t.take("A", t.offer("C", 1, begin=6, end=8))
    standing = t.offer("A", 1)
    t.until(5)
    t.delete("A")
    assert t.orders[standing].state is OrderState.WITHDRAWN
    assert not t.state.exchanges.rows
    assert [t.owns(name) for name in "BC"] == [1, 1]
    assert t.hours() == {"1": 20, "B": -20, "C": 0}


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


# ---- restart ---------------------------------------------------------------------------------------------------------


def test_a_restart_at_any_time_changes_nothing() -> None:
    def story(restarts: bool) -> tuple[list[Any], dict[str, float]]:
        t = many(2, 2, 1, match=auction())
        seen: list[Any] = []
        t.offer("A", 2, begin=1, end=6, request_id="x")
        t.want("B", 1, begin=2, end=5)
        t.want("C", 1, begin=2, end=9)
        jobs = [t.ask("B", 4) for _ in range(3)]
        for hour in range(12):
            if restarts:
                t.state = t.state.rebuilt()
            t.until(hour)
            seen.append(([t.owns(name) for name in "ABC"], [t.job(job).state for job in jobs], t.hours()))
        return seen, t.hours()

    assert story(True) == story(False)


# ---- the proxy -------------------------------------------------------------------------------------------------------


def proxied(**more: int) -> Traders:
    t = many(3, 1, match=auction())
    policy = VcPolicy(proxy_after_us=2 * HOUR, proxy_window_us=4 * HOUR, **more)
    t.step(VcRequested("A", False, policy=policy))
    return t


def test_the_proxy_is_off_unless_asked_for() -> None:
    t = many(3, 1)
    t.until(100)
    assert not t.orders
    assert not t.state.idle.rows


def test_the_proxy_offers_what_was_idle_for_long() -> None:
    t = proxied(proxy_keep=1)
    job = t.ask("A", 4)
    t.until(1)
    t.end(job)
    t.until(1.9)
    assert not t.orders
    t.until(2)
    assert [(row.lot.count, row.by_proxy, row.lot.end_us) for row in t.orders.values()] == [(1, True, at(6))]
    t.until(3)
    assert [row.lot.count for row in t.state.orders.rows.values()] == [1, 1], "the job's cell is idle for long now as well"
    assert t.state.idle.rows[1, FOURS, "node"].history == ((at(1), 3),), "what was before is of no interest any more"
    t.want("B", 1, begin=3, end=5)
    assert [t.owns(name) for name in "AB"] == [2, 2]


def test_the_proxy_takes_back_what_is_needed_before_anybody_gets_it() -> None:
    t = proxied()
    t.until(2)
    assert [row.lot.count for row in t.state.orders.rows.values()] == [3]
    t.ask("A", 4)
    assert t.orders[1].state is OrderState.WITHDRAWN
    assert [row.lot.count for row in t.state.orders.rows.values()] == [2]


def test_who_switches_its_proxy_off_has_nothing_on_the_board_of_it() -> None:
    t = proxied()
    t.until(2)
    mine = t.offer("A", 1)
    t.step(VcRequested("A", False, policy=VcPolicy()))
    assert list(t.state.orders.rows) == [mine]
    assert not t.state.idle.rows


def test_the_proxy_gives_on_what_was_taken_only_as_long_as_it_is_there() -> None:
    t = many(1, 1, match=None)
    t.step(VcRequested("B", False, policy=VcPolicy(proxy_after_us=HOUR, proxy_window_us=2 * HOUR)))
    t.take("B", t.offer("A", end=2))
    t.until(1)
    assert [row.lot.count for row in t.orders.values() if row.by_proxy] == [1], "the taken one goes back before three o'clock"
    t.until(2)
    assert t.owns("B") == 1


def test_the_proxy_lets_go_of_cells_of_a_level_that_has_gone() -> None:
    """The rows of what was idle, and the offers, outlive what the site calls its cells; nobody could be given any."""
    plan = PoolPlan("p", ("n1", "n2"), (("rack", 2),))
    t = Traders(2, plan, match=None)
    t.vc("A", ("p", "rack", 1))
    t.vc("B")
    t.step(VcRequested("A", False, policy=VcPolicy(proxy_after_us=HOUR, proxy_window_us=4 * HOUR)))
    t.until(1)
    assert [(row.lot.level, row.by_proxy) for row in t.state.orders.rows.values()] == [("rack", True)]
    rows = [(table.name, key, row) for table in t.state.tables() for key, row in table.rows.items() if table.name != "cluster"]
    renamed = PoolPlan("p", ("n1", "n2"), (("cabinet", 2),))
    t.state = State(t.state.cluster, t.state.settings._replace(pools=(renamed,)))
    t.state.restore(rows)
    t.step()
    assert not t.state.idle.rows
    assert not t.state.orders.rows
    t.until(5)


def test_an_agent_may_call_its_levels_something_else() -> None:
    t = Traders(1, match=None)
    t.vc("A", (FOURS, "switch", 2))
    t.step(VcRequested("A", False, policy=VcPolicy(proxy_after_us=HOUR, proxy_window_us=4 * HOUR)))
    t.until(1)
    assert [row.lot.level for row in t.state.orders.rows.values()] == ["switch"]
    t.step(NodeSeen("n1", "a", replace(inventory("FOUR"), levels=("bridge",))))
    assert t.state.pools is not None
    assert t.state.pools.pools[FOURS].shape.levels == ("device", "bridge", "node")
    assert not t.state.idle.rows
    assert not t.state.orders.rows
