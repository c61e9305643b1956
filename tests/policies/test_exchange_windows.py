"""What becomes of cells, and of jobs on them, as the windows of an exchange open and close, or end early."""

from typing import Any

from scheduler_service.core.messages import (
    Cells,
)
from scheduler_service.core.model import JobState, Reason
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.exchange import ExchangeState, PostingState
from scheduler_service.core.model.tenants.virtual_clusters import Quota
from scheduler_service.policies.hived.exchange.arbiter import auction
from tests.policies.tenants import OVERFLOW
from tests.policies.trading import FOURS, NODE, Traders, at, many, reason, two

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
    t = many(2, 1, match=auction)
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
    t.state.put(t.state.vcs, 1, with_changes(t.state.vcs.rows[1], quotas=(Quota(*NODE),)))
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
    assert t.postings[standing].state is PostingState.WITHDRAWN
    assert not t.state.exchanges.rows
    assert [t.owns(name) for name in "BC"] == [1, 1]
    assert t.hours() == {"1": 20, "B": -20, "C": 0}


# ---- restart ---------------------------------------------------------------------------------------------------------


def test_a_restart_at_any_time_changes_nothing() -> None:
    def story(restarts: bool) -> tuple[list[Any], dict[str, float]]:
        t = many(2, 2, 1, match=auction)
        seen: list[Any] = []
        t.offer("A", 2, begin=1, end=6, request_id="x")
        t.want("B", 1, begin=2, end=5)
        t.want("C", 1, begin=2, end=9)
        jobs = [t.ask("B", 4) for _ in range(3)]
        for hour in range(12):
            if restarts:
                t.state = t.state.rebuild()
            t.until(hour)
            seen.append(([t.owns(name) for name in "ABC"], [t.job(job).state for job in jobs], t.hours()))
        return seen, t.hours()

    assert story(True) == story(False)
