"""A tenant's proxy (HiveD, figure 5): offers cells that have been idle for long, and withdraws them when they are needed.

It is off unless the tenant sets a time. It only proposes; its offers are posted and withdrawn like any others.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from scheduler_service.core.exchange.book import Board
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.exchange import Exchange, ExchangeState, Lot, Posting
from scheduler_service.core.model.values import Micros


class ProxySettings(NamedTuple):
    idle_us: Micros = 0
    """How long cells must have been idle, without a break, to be offered; 0: the proxy is off."""
    window_us: Micros = 0
    """For how long they are offered, from now on; 0: for as long as they must have been idle."""
    keep: int = 0
    """Idle cells of each kind that are not offered."""


class Idle(NamedTuple):
    """How many cells of a kind a VC has had idle, within its quota of the time."""

    pool: str
    level: str
    devices: int
    """The devices of one cell."""
    history: tuple[tuple[Micros, int], ...]
    """(From when on, how many), in order of time."""

    def least_since(self, since_us: Micros) -> int:
        """How many have been idle ever since: cells have no names, so it is the fewest there were at any time."""
        before = [count for at, count in self.history if at <= since_us]
        if not before:
            return 0  # that is unknown
        return min([before[-1], *(count for at, count in self.history if at > since_us)])


def propose_idle(
    board: Board,
    exchanges: Iterable[Exchange],
    vc: int,
    idle: Iterable[Idle],
    settings: ProxySettings,
    owned: Callable[[Lot], int] | None = None,
) -> list[Lot]:
    """The lots to offer: idle cells that are not on offer already, nor promised for later. `owned`: how many such cells it owns
    throughout the lot's window; what it took in exchange may go back before."""
    if not settings.idle_us:
        return []
    exchanges, lots = tuple(exchanges), []
    for kind in idle:
        offered = _on_offer(board, vc, kind)
        count = (
            kind.least_since(board.now - settings.idle_us)
            - settings.keep
            - offered
            - _cells_to_give(board, exchanges, vc, kind)
        )
        end = board.now + (settings.window_us or settings.idle_us)
        lot = Lot(kind.pool, kind.level, count, board.now, end, kind.devices)
        if owned is not None and count > 0:
            lot = with_changes(lot, count=min(count, owned(lot) - offered))
        if lot.count > 0:
            lots.append(lot)
    return lots


def propose_withdrawals(
    board: Board, exchanges: Iterable[Exchange], vc: int, idle: Iterable[Idle], settings: ProxySettings
) -> list[int]:
    """The offers to withdraw, the proxy's own: the latest, until no more is on offer than is idle. What was agreed on stays
    agreed."""
    exchanges, withdrawn = tuple(exchanges), []
    for kind in idle:
        now_idle = kind.history[-1][1] if kind.history else 0
        excess = _on_offer(board, vc, kind) + _cells_to_give(board, exchanges, vc, kind) + settings.keep - now_idle
        for offer in reversed(board.offers_of(vc, kind.pool, kind.level)):
            if excess > 0 and offer.by_proxy and _cells_not_given(board, offer):
                excess -= _cells_not_given(board, offer)
                withdrawn.append(offer.id)
    return withdrawn


def _cells_not_given(board: Board, offer: Posting) -> int:
    """The cells of an offer that nobody has at this moment: the VC still has them in its quota."""
    return board.cells_left(offer, board.now, board.now + 1)


def _on_offer(board: Board, vc: int, kind: Idle) -> int:
    return sum(_cells_not_given(board, offer) for offer in board.offers_of(vc, kind.pool, kind.level))


def _cells_to_give(board: Board, exchanges: Iterable[Exchange], vc: int, kind: Idle) -> int:
    """Cells that it will give in windows that have not begun, but for those of offers that still stand."""
    return sum(
        x.lot.count
        for x in exchanges
        if (x.state, x.giver, x.lot.pool, x.lot.level) == (ExchangeState.MATCHED, vc, kind.pool, kind.level)
        and x.offer not in board.postings
    )
