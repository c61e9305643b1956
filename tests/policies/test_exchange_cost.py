"""What many postings and exchanges cost: counted, since a time is no assertion."""

from random import Random

import pytest

from scheduler_service.core.engine import step
from scheduler_service.core.exchange.book import Board
from scheduler_service.core.exchange.ownership import board_of, least_owned, most_cells, turn_windows, why_not_owned
from scheduler_service.core.exchange.quota_timeline import granted_cells, moments
from scheduler_service.core.messages import Submitted
from scheduler_service.core.model.tenants.exchange import Deal, Exchange, ExchangeState, Lot, PostingState
from scheduler_service.core.model.tenants.virtual_clusters import VcPolicy
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.exchange import arbiter_and_proxies as stage
from scheduler_service.policies.hived.exchange.arbiter import Match, auction, balance_surplus
from scheduler_service.policies.hived.policy import cells
from tests.core.test_cells_cost import calls
from tests.policies.tenants import request
from tests.policies.trading import FOURS, HOUR, Traders, at


@pytest.mark.parametrize("match", [balance_surplus, auction])
def test_whether_somebody_owns_what_many_offers_have_is_asked_once(match: Match, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve offers of the one cell, twelve requests of it: after the first deal none of the others can be."""
    t = Traders(1, match=None)
    t.vc("A", (FOURS, "node", 1))
    t.vc("B")
    for _ in range(12):
        t.offer("A", begin=1, end=9)
        t.want("B", begin=2, end=8)
    asked: list[Deal] = []

    def counting(state: State, deal: Deal) -> str | None:
        asked.append(deal)
        return why_not_owned(state, deal)

    monkeypatch.setattr(stage, "why_not_owned", counting)
    t.policy = cells(match)
    t.settles = False
    t.state.pending.policies = t.state.pending.market = True
    t.step()
    assert [posting.state for posting in t.postings.values()].count(PostingState.MATCHED) == 1
    taken_and_undone_before = 2
    assert len(asked) <= 3 * taken_and_undone_before


def test_who_owns_what_is_asked_again_once_there_was_a_deal() -> None:
    """Of two cells both are given, and not a third."""
    t = Traders(2, match=None)
    t.vc("A", (FOURS, "node", 2))
    t.vc("B")
    for _ in range(4):
        t.offer("A", begin=1, end=9)
        t.want("B", begin=2, end=8)
    t.policy = cells(balance_surplus)
    t.want("B", begin=20, end=21)
    assert [exchange.lot.begin_us for exchange in t.exchanges.values()] == [at(2), at(2)]


def holding(count: int) -> Traders:
    """B has so many exchanges to come, of windows that all begin and end at other times."""
    t = Traders(1, match=None)
    t.vc("A", (FOURS, "node", 1))
    t.vc("B")
    for number in range(1, count + 1):
        window = Lot(FOURS, ("node", "switch", "device")[number % 3], 1, at(number), at(2 * number + 7), 4)
        sides = (2, 1) if number % 5 == 0 else (1, 2)
        t.state.put(t.state.exchanges, number, Exchange(number, 0, 1, *sides, window, 0, t.now))
    return t


@pytest.mark.parametrize("count", [1, 10, 40])
def test_what_is_owned_in_windows_is_what_exchanges_grant_at_each_of_their_moments(count: int) -> None:
    t = holding(count)
    mine, pools = list(t.state.exchanges.rows.values()), t.state.pools
    assert pools is not None
    for begin in (0, 1, 9, 30, 200):
        for end in (begin, begin + 1, begin + 40):
            window = at(begin), at(end)
            for level in ("node", "switch"):
                least = min(granted_cells(mine, time).get((2, FOURS, level), 0) for time in moments(mine, *window))
                assert least_owned(t.state, 2, FOURS, level, *window) == least
    times = moments(mine, t.now, at(10_000))
    most = [
        max(granted_cells(mine, time).get((2, FOURS, level), 0) for time in times) for level in ("device", "switch", "node")
    ]
    assert most_cells(t.state, pools, t.state.vcs.rows[2], FOURS) == tuple(most)


def test_what_a_submit_and_a_deal_cost_grows_with_the_exchanges_and_not_with_their_square() -> None:
    def cost(count: int) -> int:
        t = holding(count)
        pools, vc = t.state.pools, t.state.vcs.rows[2]
        assert pools is not None
        most = calls(lambda: most_cells(t.state, pools, vc, FOURS))
        return most + calls(lambda: least_owned(t.state, 2, FOURS, "node", at(0), at(10_000)))

    assert cost(480) < 9 * cost(60)


def test_what_it_costs_to_open_a_window_grows_with_the_exchanges_and_not_with_their_square() -> None:
    """Of the many hours that somebody gave, the first begins."""

    def cost(count: int) -> int:
        t = Traders(2, match=None)
        t.vc("A", (FOURS, "node", 2))
        t.vc("B")
        t.want("B", begin=1, end=2)
        for number in range(1, count + 1):
            window = Lot(FOURS, "node", 1, at(number), at(number + 1), 4)
            t.state.put(t.state.exchanges, number, Exchange(number, 0, 1, 1, 2, window, 0, t.now))
        t.state.adopt()
        counted = calls(lambda: turn_windows(t.state, at(1)))
        assert t.state.exchanges.rows[1].state is ExchangeState.ACTIVE
        return counted

    assert cost(480) < 9 * cost(60)


def test_what_proxies_cost_a_step_does_not_grow_with_how_many_there_are() -> None:
    """Of those whose cells are bound as before."""

    def cost(count: int) -> int:
        t = Traders(2 * count, match=None)
        t.settles = False
        for number in range(count):
            t.vc(f"v{number}", (FOURS, "node", 1), policy=VcPolicy(proxy_after_us=HOUR))
        t.asked("v1", 4)  # once, for what is looked at when it is first asked for
        event = Submitted("ann", "", request("v0", 4))
        counted = calls(lambda: step(t.state, (event,), t.now, Random(0), t.policy))
        assert t.state.idle.rows[t.state.vc_ids["v0"], FOURS, "node"].history[-1][1] == 0
        return counted

    assert cost(24) < 1.5 * cost(6)


def test_a_job_that_takes_no_idle_cell_has_no_proxy_look_at_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most steps change nothing for proxies, and to make a board costs more than all else that they do."""
    t = Traders(4, match=None)
    for name in ("A", "B"):
        t.vc(name, (FOURS, "node", 2), policy=VcPolicy(proxy_after_us=HOUR))
    t.asked("A", 1)
    made: list[int] = []

    def counting(state: State, now: int) -> Board:
        made.append(now)
        return board_of(state, now)

    monkeypatch.setattr(stage, "board_of", counting)

    def boards(gpus: int) -> int:
        made.clear()
        taken = step(t.state, (Submitted("ann", "", request("A", gpus)),), t.now, Random(0), t.policy)
        assert taken.orders
        t.state.adopt()
        return len(made)

    assert boards(1) == 0  # in the cell that is bound already
    assert boards(4) == 1
