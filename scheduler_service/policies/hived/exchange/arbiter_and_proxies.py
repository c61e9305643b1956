"""The exchange arbiter and the tenants' proxies, as stages of a policy (HiveD, section 3.3)."""

from collections.abc import Generator, Iterator

from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.queries import cells_of, has_level, idle_cells
from scheduler_service.core.cells.shape import level_of
from scheduler_service.core.exchange.book import Board
from scheduler_service.core.exchange.ownership import board_of, exchanges_of, least_owned, why_not_owned
from scheduler_service.core.messages import Agree, NoteIdle, OfferIdle, Plan, Withdraw
from scheduler_service.core.model.tenants.exchange import Deal, Kind, Lot, PostingKind
from scheduler_service.core.model.tenants.idle_history import IdleCells, with_idle_count
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.core.state.state import State
from scheduler_service.policies.hived.exchange.arbiter import Match, auction, balance_surplus, settle
from scheduler_service.policies.hived.exchange.proxy import Idle, ProxySettings, propose_idle, propose_withdrawals

MATCHES: dict[str, Match | None] = {"balanced": balance_surplus, "auction": auction, "none": None}
"""The arbiter's policies that a site may choose; none: deals are made by tenants alone."""


def arbitrate(state: State, match: Match | None) -> Generator[Plan, str | None, bool]:
    """Match offers and requests, if something has changed for them. Returns whether there was a deal: others may own cells
    then."""
    if match is None or not state.pending.market:
        return False
    board = board_of(state, state.cluster.clock_us)
    if len({posting.kind for posting in board.postings.values()}) < len(PostingKind):
        return False
    surplus = {vc: row.device_us for vc, row in state.surpluses.rows.items()}
    known: dict[tuple[int, Lot, int, Lot | None], str | None] = {}

    def fits(deal: Deal) -> str | None:
        """One virtual cluster may have many offers of the same cells: whether it owns them is the same for all."""
        sides = deal.giver, deal.lot, deal.taker if deal.swap is not None else 0, deal.swap
        if sides not in known:
            known[sides] = why_not_owned(state, deal)
        return known[sides]

    deals = settle(board, surplus, match, fits)
    made, deal = False, next(deals, None)
    while deal is not None:
        answer = yield (Agree(deal),)
        if answer is None:  # cells have other owners now
            made = True
            known.clear()
        try:
            deal = deals.send(answer)
        except StopIteration:
            deal = None
    return made


# ---- proxies -----------------------------------------------------------------------------------------------------------


def run_proxies(state: State) -> Generator[Plan, str | None, None]:
    """Posts for tenants what has been idle for long, and takes back what they need. Nothing of that changes but with the board,
    or for those that have other cells bound, as long as there are cells for all: only these are looked at."""
    if not (state.pending.market or state.pending.vcs):
        return
    on = {vc.id for vc in state.vcs.rows.values() if vc.policy.proxy_after_us}
    if state.pending.market and state.idle.rows:
        yield from _forget(state, on)
    if state.pools is None:
        return
    board = None
    for vc_id in sorted(on if state.pending.market else on & state.pending.vcs):
        vc = state.vcs.rows[vc_id]
        news = yield from _note(state, state.pools, vc)
        if news or state.pending.market:
            board = yield from _propose(state, state.pools, vc, board or _board(state))


def _forget(state: State, on: set[int]) -> Iterator[Plan]:
    """Forget everything about proxies that were switched off, and withdraw their offers."""
    off = sorted(kind for kind in state.idle.rows if kind[0] not in on)
    if off:
        offers = sorted(posting.id for posting in state.postings.rows.values() if posting.by_proxy and posting.vc not in on)
        yield (*(NoteIdle(*kind) for kind in off), *(Withdraw(posting) for posting in offers))


def _note(state: State, pools: Pools, vc: VirtualCluster) -> Generator[Plan, str | None, bool]:
    """Whether there was something to note."""
    now, news = state.cluster.clock_us, False
    for kind in _kinds(state, pools, vc):
        row = state.idle.rows.get(kind)
        if not has_level(pools, *kind[1:]):
            news = True
            yield (NoteIdle(*kind), *(Withdraw(posting) for posting in _proxys(state, kind)))
            continue
        if row is None or with_idle_count(row, idle_cells(pools, kind), now, vc.policy.proxy_after_us) != row:
            news = True
            yield (NoteIdle(*kind),)
    return news


def _proxys(state: State, kind: Kind) -> list[int]:
    """The open offers of these cells that the proxy has posted."""
    there = (posting for posting in state.postings.rows.values() if posting.by_proxy)
    return sorted(posting.id for posting in there if (posting.vc, posting.lot.pool, posting.lot.level) == kind)


def _kinds(state: State, pools: Pools, vc: VirtualCluster) -> list[Kind]:
    """The kinds of cells that it has, or had."""
    has = {(vc.id, name, level) for name in pools.has_cells_in(vc) if name in pools.pools for level in _levels(pools, vc, name)}
    return sorted(has.union(state.idle_of.get(vc.id, ())))


def _levels(pools: Pools, vc: VirtualCluster, pool: str) -> list[str]:
    levels = pools.pools[pool].shape.levels
    return [level for level, count in zip(levels, cells_of(pools, vc, pool), strict=True) if count > 0]


def _propose(state: State, pools: Pools, vc: VirtualCluster, board: Board) -> Generator[Plan, str | None, Board]:
    """Returns the board as it is then: to make it costs more than all else here, and most of the time it is the same."""
    rows = [state.idle.rows[kind] for kind in sorted(state.idle_of.get(vc.id, ()))]
    idle = [_idle_cells(pools, row) for row in rows if has_level(pools, row.pool, row.level)]
    policy = vc.policy
    settings = ProxySettings(policy.proxy_after_us, policy.proxy_window_us, policy.proxy_keep)
    exchanges = exchanges_of(state, vc.id)
    withdrawals = propose_withdrawals(board, exchanges, vc.id, idle, settings)
    for posting in withdrawals:
        yield (Withdraw(posting),)
    if withdrawals:
        board = _board(state)

    def count_owned(lot: Lot) -> int:
        return least_owned(state, vc.id, lot.pool, lot.level, lot.begin_us, lot.end_us)

    offers = propose_idle(board, exchanges, vc.id, idle, settings, count_owned)
    for lot in offers:
        yield (OfferIdle(vc.id, lot),)
    return _board(state) if offers else board


def _board(state: State) -> Board:
    return board_of(state, state.cluster.clock_us)


def _idle_cells(pools: Pools, row: IdleCells) -> Idle:
    shape = pools.pools[row.pool].shape
    level = level_of(shape, row.level)
    devices = 0 if level is None or not pools.models[row.pool] else shape.size(level)
    return Idle(row.pool, row.level, devices, row.history)
