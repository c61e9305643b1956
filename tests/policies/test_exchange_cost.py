"""What many orders and exchanges cost: counted, since a time is no assertion."""

import pytest

from scheduler_service.core.board import Deal
from scheduler_service.core.exchange import OrderState
from scheduler_service.core.state import State
from scheduler_service.core.windows import why_not_owned
from scheduler_service.policies.cells import exchanging
from scheduler_service.policies.cells.policy import cells
from scheduler_service.policies.exchange import Match, auction, balanced
from tests.policies.trading import FOURS, Traders, at


@pytest.mark.parametrize("match", [balanced, auction()])
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

    monkeypatch.setattr(exchanging, "why_not_owned", counting)
    t.policy = cells(match)
    t.settles = False
    t.state.unsettled = t.state.board_changed = True
    t.step()
    assert [order.state for order in t.orders.values()].count(OrderState.MATCHED) == 1
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
    t.policy = cells(balanced)
    t.want("B", begin=20, end=21)
    assert [exchange.lot.begin_us for exchange in t.exchanges.values()] == [at(2), at(2)]
