"""Exchanges in the state: who owns what at a time, deals that are made, windows that open and close (HiveD, section 3.3).

An exchange takes as many cells of a level from one virtual cluster as it adds to another. So all of them together are promised
the same, and Eqn 2 holds as before, as long as none gives what it does not own: this is checked over the whole window of each
deal, and kept whenever a quota or an exchange changes.
"""

from collections import defaultdict

from scheduler_service.core.allocation.guarantee_loss import shrink
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.queries import cells_of
from scheduler_service.core.errors import require
from scheduler_service.core.exchange.book import Board, rows_of_deal
from scheduler_service.core.exchange.quota_timeline import balance
from scheduler_service.core.exchange.transitions import Booked, advance_exchange, called_off, withdraw_posting
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.exchange import Deal, Exchange, ExchangeState, Surplus, exchange_due
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster, quota_of
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.state import State

# ---- who owns what -----------------------------------------------------------------------------------------------------


def board_of(state: State, now: Micros) -> Board:
    return Board(state.postings.rows.values(), state.exchanges.rows.values(), now)


def exchanges_of(state: State, vc: int) -> list[Exchange]:
    """The live exchanges in which the virtual cluster gives or takes, in the order in which they were agreed."""
    return [state.exchanges.rows[exchange] for exchange in sorted(state.exchange_index.of.get(vc, ()))]


def least_owned(state: State, vc: int, pool: str, level: str, begin_us: Micros, end_us: Micros) -> int:
    """The fewest cells of a kind that a virtual cluster owns at any time of a window: its quota, with what it took and without
    what it gave."""
    row = state.vcs.rows.get(vc)
    own = 0 if row is None else quota_of(row, pool, level)
    mine = [x for x in exchanges_of(state, vc) if (x.lot.pool, x.lot.level) == (pool, level)]
    return own + min(balance(mine, vc, begin_us, max(end_us, begin_us + 1)))


def most_cells(state: State, pools: Pools, vc: VirtualCluster, pool: str) -> tuple[int, ...]:
    """The most cells of each level of a pool that the virtual cluster owns at any time from now on, as far as is agreed."""
    if vc.id not in state.exchange_index.of:
        return cells_of(pools, vc, pool)
    levels = pools.pools[pool].shape.levels
    own, mine = dict.fromkeys(levels, 0), defaultdict[str, list[Exchange]](list)
    for quota in vc.quotas:
        if quota.pool == pool and quota.level in own:
            own[quota.level] += quota.cells
    for x in exchanges_of(state, vc.id):
        if x.lot.pool == pool:
            mine[x.lot.level].append(x)
    now = state.cluster.clock_us
    end = max([now + 1, *(x.lot.end_us for there in mine.values() for x in there)])
    return tuple(count + max(0, *balance(mine[level], vc.id, now, end)) for level, count in own.items())


def why_not_owned(state: State, deal: Deal) -> str | None:
    """Why a deal cannot be made, whatever is on the board: the giver must own the cells throughout, as things are agreed now.
    None: it can."""
    gives = [(deal.giver, deal.lot)]
    if deal.swap is not None:
        gives.append((deal.taker, deal.swap))
    for vc in (deal.giver, deal.taker):
        if vc not in state.vcs.rows:
            return f"there is no virtual cluster {vc}"
    for vc, lot in gives:
        owned = least_owned(state, vc, lot.pool, lot.level, lot.begin_us, lot.end_us)
        if owned < lot.count:
            name = state.vcs.rows[vc].name
            return f"virtual cluster {name} owns {max(owned, 0)} {lot.level} cells of pool {lot.pool} then, and not {lot.count}"
    return None


# ---- deals -------------------------------------------------------------------------------------------------------------


def agree(state: State, deal: Deal, now: Micros, request_id: str = "") -> tuple[int, ...]:
    """Makes the deal, and opens its windows if they have begun; returns its exchanges. Raises PlanRefused."""
    board = board_of(state, now)
    first = state.cluster.next_exchange
    made = rows_of_deal(board, deal, first)
    why = why_not_owned(state, deal)
    require(why is None, why or "")
    ids = tuple(one.exchange.id for one in made.exchanges)
    state.put(state.cluster_table, 0, with_changes(state.cluster, next_exchange=ids[-1] + 1))
    for posting in made.postings:
        state.put(state.postings, posting.id, posting)
    for one in made.exchanges:
        by = request_id if one.exchange.id == first else ""
        book(state, Booked(with_changes(one.exchange, request_id=by), one.entries))
    turn_windows(state, now)
    return ids


def book(state: State, what: Booked) -> None:
    """Writes the exchange as it is now, and what is booked for it."""
    state.put(state.exchanges, what.exchange.id, what.exchange)
    for entry in what.entries:
        state.put(state.ledger, (entry.vc, entry.exchange, entry.what), entry)
        before = state.surpluses.rows.get(entry.vc)
        had = 0 if before is None else before.device_us
        state.put(state.surpluses, entry.vc, Surplus(entry.vc, had + entry.device_us))


# ---- time --------------------------------------------------------------------------------------------------------------


def turn_windows(state: State, now: Micros) -> None:
    """Opens and closes all windows that are due, and only then releases cells that virtual clusters have bound and do not own:
    what goes back to one may pass to the next at the same moment."""
    due = [x.id for x in state.exchanges.rows.values() if (at := exchange_due(x)) is not None and at <= now]
    shrunk: dict[int, str] = {}
    for exchange_id in sorted(due):
        before = state.exchanges.rows.get(exchange_id)
        while before is not None and (after := advance_exchange(before, now)).exchange is not before:
            book(state, after)
            if after.exchange.state is ExchangeState.ACTIVE:
                shrunk[before.giver] = f"exchange {before.id} has begun"
            elif before.state is ExchangeState.ACTIVE:
                shrunk[before.taker] = f"exchange {before.id} is over"
            before = state.exchanges.rows.get(exchange_id)
    for vc, why in shrunk.items():
        call_off_excess(state, vc, now, why)
    _shrink(state, shrunk, now)


def call_off(state: State, exchange: Exchange, now: Micros, why: str) -> None:
    """Ends an exchange immediately, without asking its sides; what its taker gave to others and does not own then ends too."""
    book(state, called_off(exchange, now))
    call_off_excess(state, exchange.taker, now, why)
    _shrink(state, {exchange.taker: why}, now)


def call_off_excess(state: State, vc: int, now: Micros, why: str) -> None:
    """Ends exchanges in which a virtual cluster gives what it does not own any more, the latest agreed first. Nearly always
    none is lacking, which takes one check for each kind."""
    given = [x for x in exchanges_of(state, vc) if x.giver == vc]
    last = max((x.lot.end_us for x in given), default=now)
    kinds = {(x.lot.pool, x.lot.level) for x in given}
    lacking = {kind for kind in kinds if least_owned(state, vc, *kind, now, last) < 0}
    for exchange in reversed(given) if lacking else ():
        lot = exchange.lot
        if (lot.pool, lot.level) not in lacking or exchange.id not in state.exchanges.rows:
            continue
        if least_owned(state, vc, lot.pool, lot.level, max(now, lot.begin_us), lot.end_us) < 0:
            call_off(state, exchange, now, why)


def leave_market(state: State, vc: int, now: Micros, why: str) -> None:
    """Removes all that a virtual cluster has on the board and in exchange. Its entries stay in the ledger."""
    for posting in sorted(state.postings.rows):
        if state.postings.rows[posting].vc == vc:
            state.put(state.postings, posting, withdraw_posting(state.postings.rows[posting]))
    for exchange in reversed(exchanges_of(state, vc)):
        if exchange.id in state.exchanges.rows:
            call_off(state, exchange, now, why)


def _shrink(state: State, vcs: dict[int, str], now: Micros) -> None:
    if state.pools is not None:
        for vc, why in vcs.items():
            shrink(state, state.pools, vc, why, now)
