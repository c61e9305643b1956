"""Requests of virtual clusters to the exchange: offers and requests, deals of their own choice, and early ends. Each is safe to
repeat: one that makes something new takes a request_id."""

from typing import Any, assert_never

from scheduler_service.core.allocation.guarantee_loss import shrink
from scheduler_service.core.cells.pools import Pools
from scheduler_service.core.cells.queries import has_level, idle_cells
from scheduler_service.core.errors import AlreadyExists, FailedPrecondition, NotFound, PlanRefused, ResourceExhausted, require
from scheduler_service.core.exchange.book import accept
from scheduler_service.core.exchange.ownership import agree, board_of, book, call_off, least_owned, turn_windows, why_not_owned
from scheduler_service.core.exchange.quota_timeline import from_now
from scheduler_service.core.exchange.transitions import expire_if_due, prepare_posting, return_asked, withdraw_posting
from scheduler_service.core.handlers.virtual_clusters import find_vc, level_named, pools_of
from scheduler_service.core.messages import (
    AcceptRequested,
    Cells,
    Exchanged,
    NoteIdle,
    OfferIdle,
    PostingChanged,
    PostRequested,
    ReturnRequested,
    Withdraw,
    WithdrawRequested,
)
from scheduler_service.core.model.rows import with_changes
from scheduler_service.core.model.tenants.exchange import Exchange, ExchangeState, Lot, Posting, PostingKind
from scheduler_service.core.model.tenants.idle_history import IdleCells, with_idle_count
from scheduler_service.core.model.tenants.virtual_clusters import VirtualCluster
from scheduler_service.core.model.values import Micros
from scheduler_service.core.state.queue_keys import Deadline, ExchangeDeadline
from scheduler_service.core.state.state import State

MOST_DEVICE_US = 10**18
"""The most device-microseconds of a lot, or a bid: 30,000 devices for a year. All that is agreed fits into 64 bits then."""

MOST_POSTINGS = 100
"""The most postings of a virtual cluster on the board at a time: each is weighed against all others whenever the board changes.
Those of its proxy do not count: they are no more than it has cells."""

# ---- offers and requests -----------------------------------------------------------------------------------------------


def post_requested(state: State, event: PostRequested, now: Micros) -> PostingChanged:
    """Puts an offer or a request on the board. No virtual cluster offers more than it owns at any time of the window."""
    pools, vc = pools_of(state), find_vc(state, event.vc)
    known = state.exchange_index.posted.get((vc.id, event.request_id))
    if known is not None:
        check_same_post(state.postings.rows[known], event)
        return PostingChanged(known)
    posting = prepare_posting(
        Posting(
            id=state.cluster.next_posting,
            kind=event.kind,
            vc=vc.id,
            lot=_lot(pools, event.cells, now),
            posted_us=now,
            expires_us=event.expires_us or _lot(pools, event.cells, now).end_us,
            bid=event.bid,
            swap=None if event.swap is None else _lot(pools, event.swap, now),
            request_id=event.request_id,
        )
    )
    if posting.expires_us <= now:
        text = "it would leave the board at once: a swap is agreed on before the first of its windows begins"
        raise FailedPrecondition("WINDOW_OVER", text)
    gives = posting.lot if posting.kind is PostingKind.OFFER else posting.swap
    if gives is not None:
        _check_owned(state, vc, from_now(gives, now))
    _check_few(state, vc)
    _put_new(state, posting)
    return PostingChanged(posting.id)


def withdraw_requested(state: State, event: WithdrawRequested, _now: Micros) -> PostingChanged:
    pools_of(state)
    posting = state.postings.rows.get(event.posting)
    if posting is None:
        raise NotFound(
            "NO_OPEN_POSTING",
            f"posting {event.posting} is not on the board: it was met, was withdrawn or has expired",
            posting_id=str(event.posting),
        )
    if event.vc and find_vc(state, event.vc).id != posting.vc:
        raise FailedPrecondition("NOT_YOURS", f"posting {posting.id} is another virtual cluster's", posting_id=str(posting.id))
    state.put(state.postings, posting.id, withdraw_posting(posting))
    return PostingChanged(posting.id)


def _put_new(state: State, posting: Posting) -> None:
    state.put(state.cluster_table, 0, with_changes(state.cluster, next_posting=posting.id + 1))
    state.put(state.postings, posting.id, posting)


def _lot(pools: Pools, cells: Cells, now: Micros) -> Lot:
    level = level_named(pools, cells.pool, cells.level)
    devices = pools.pools[cells.pool].shape.size(level) if pools.models[cells.pool] else 0
    lot = Lot(cells.pool, cells.level, cells.count, cells.begin_us or now, cells.end_us, devices)
    if lot.device_us > MOST_DEVICE_US:
        text = (
            f"{lot.count} {lot.level} cells of {devices} devices for that time come to {lot.device_us} device-microseconds, "
            f"more than the {MOST_DEVICE_US} that an offer or request may be about; ask for fewer cells, or for a shorter time"
        )
        raise FailedPrecondition("LOT_TOO_LARGE", text, device_us=str(lot.device_us), most=str(MOST_DEVICE_US))
    return lot


def check_same_post(known: Posting, event: PostRequested) -> None:
    """Raises AlreadyExists unless the request_id came with the same posting as at first. "From now on" means from then on."""
    lots = (known.lot,) if known.swap is None else (known.lot, known.swap)
    leaves = known.lot.end_us if known.swap is None else min(lot.begin_us for lot in lots)
    expires = min(event.expires_us or known.lot.end_us, leaves)
    asked = (event.cells,) if event.swap is None else (event.cells, event.swap)
    same = len(lots) == len(asked) and all(map(_asked_for, lots, asked))
    if not same or (known.kind, known.bid, known.expires_us) != (event.kind, event.bid, expires):
        raise _request_id_reused(event.request_id, f"{known.kind.name.lower()} {known.id}")


def _asked_for(lot: Lot, cells: Cells) -> bool:
    window = cells.begin_us or lot.begin_us, cells.end_us
    return (lot.pool, lot.level, lot.count, lot.begin_us, lot.end_us) == (cells.pool, cells.level, cells.count, *window)


def _request_id_reused(request_id: str, what: str) -> AlreadyExists:
    return AlreadyExists(
        "REQUEST_ID_REUSED",
        f"request_id {request_id!r} was already used for {what}, which is something else; take a new request_id for a new one",
    )


def _check_owned(state: State, vc: VirtualCluster, lot: Lot) -> None:
    owned = least_owned(state, vc.id, lot.pool, lot.level, lot.begin_us, lot.end_us)
    if owned < lot.count:
        raise FailedPrecondition(
            "NOT_OWNED",
            f"virtual cluster {vc.name} owns {max(owned, 0)} {lot.level} cells of pool {lot.pool} at some time of the window "
            f"and cannot give {lot.count}; offer fewer, or for another time",
            vc=vc.name,
            pool=lot.pool,
            level=lot.level,
            owned=str(max(owned, 0)),
        )


def _check_few(state: State, vc: VirtualCluster) -> None:
    if sum(posting.vc == vc.id and not posting.by_proxy for posting in state.postings.rows.values()) >= MOST_POSTINGS:
        raise ResourceExhausted(
            "TOO_MANY_POSTINGS",
            f"virtual cluster {vc.name} has {MOST_POSTINGS} offers and requests on the board; "
            "withdraw some, or wait until some are met",
            vc=vc.name,
            most=str(MOST_POSTINGS),
        )


# ---- exchanges ---------------------------------------------------------------------------------------------------------


def accept_requested(state: State, event: AcceptRequested, now: Micros) -> Exchanged:
    """Takes an offer for a tenant, all of it that is left or a part, or gives what another requests."""
    pools_of(state)
    vc = find_vc(state, event.vc)
    known = state.exchange_index.accepted.get((vc.id, event.request_id))
    if known is not None:
        check_same_deal(state.exchanges.rows[known], event)
        there = [known, *(x.id for x in state.exchanges.rows.values() if x.in_return_for == known)]
        return Exchanged(tuple(there))
    board = board_of(state, now)
    deal = accept(board, event.posting, vc.id, _part(board.postings.get(event.posting), event, now))
    why = why_not_owned(state, deal)
    if why is not None:
        raise FailedPrecondition("NO_DEAL", why, posting_id=str(event.posting))
    return Exchanged(agree(state, deal, now, event.request_id))


def check_same_deal(known: Exchange, event: AcceptRequested) -> None:
    """Raises AlreadyExists unless the request_id came with the same posting and part of it, as far as that is named."""
    lot = known.lot
    part = event.count or lot.count, event.begin_us or lot.begin_us, event.end_us or lot.end_us
    if event.posting not in (known.offer, known.request) or part != (lot.count, lot.begin_us, lot.end_us):
        raise _request_id_reused(event.request_id, f"exchange {known.id}")


def _part(posting: Posting | None, event: AcceptRequested, now: Micros) -> Lot | None:
    """The part of an offer that is taken; None: all that is left."""
    if posting is None or not (event.count or event.begin_us or event.end_us):
        return None
    lot = from_now(posting.lot, now)
    begin, end = event.begin_us or lot.begin_us, event.end_us or lot.end_us
    return with_changes(lot, count=event.count or lot.count, begin_us=begin, end_us=end)


def return_requested(state: State, event: ReturnRequested, now: Micros) -> Exchanged:
    """Ends an exchange early, once both sides have asked for it; immediately if the site asks."""
    pools = pools_of(state)
    exchange = state.exchanges.rows.get(event.exchange)
    if exchange is None:
        raise NotFound(
            "NO_LIVE_EXCHANGE",
            f"exchange {event.exchange} is over, or there never was one of that number",
            exchange_id=str(event.exchange),
        )
    why = f"exchange {exchange.id} was ended early"
    if not event.vc:
        call_off(state, exchange, now, why)
        return Exchanged((exchange.id,))
    after = return_asked(exchange, find_vc(state, event.vc).id, now)
    book(state, after)
    if after.exchange.state is ExchangeState.RETURNED:
        _check_not_given_on(state, exchange, now)
        shrink(state, pools, exchange.taker, why, now)
    return Exchanged((exchange.id,))


def _check_not_given_on(state: State, exchange: Exchange, now: Micros) -> None:
    lot = from_now(exchange.lot, now)
    if least_owned(state, exchange.taker, lot.pool, lot.level, lot.begin_us, lot.end_us) < 0:
        raise FailedPrecondition(
            "GIVEN_ON",
            f"virtual cluster {state.vcs.rows[exchange.taker].name} has given these cells on; end that exchange first",
            exchange_id=str(exchange.id),
        )


# ---- time --------------------------------------------------------------------------------------------------------------


def exchange_overdue(state: State, now: Micros, kind: ExchangeDeadline, key: tuple[Any, ...]) -> None:
    """Acts on a deadline that has passed."""
    match kind:
        case Deadline.WINDOW:
            turn_windows(state, now)
        case Deadline.IDLE:
            note_idle(state, NoteIdle(*key), now)
            state.pending.market = True  # they have been idle for long enough to be offered
        case Deadline.POSTING_EXPIRES | Deadline.POSTING_BEGINS:
            posting = with_changes(state.postings.rows[key[0]], begins_us=None)
            state.put(state.postings, posting.id, expire_if_due(posting, now))
        case _:
            assert_never(kind)


# ---- a tenant's proxy --------------------------------------------------------------------------------------------------


def note_idle(state: State, action: NoteIdle, now: Micros) -> None:
    """Notes how many cells are idle. There are no such rows for a virtual cluster without a proxy, or for cells that do not
    exist any more."""
    row, pools, key = state.vcs.rows.get(action.vc), state.pools, (action.vc, action.pool, action.level)
    if row is None or pools is None or not row.policy.proxy_after_us or not has_level(pools, action.pool, action.level):
        state.put(state.idle, key, None)
        return
    known = state.idle.rows.get(key) or IdleCells(*key)
    state.put(state.idle, key, with_idle_count(known, idle_cells(pools, key), now, row.policy.proxy_after_us))


def offer_idle(state: State, action: OfferIdle, now: Micros) -> None:
    vc, lot = state.vcs.rows.get(action.vc), action.lot
    if vc is None:
        raise PlanRefused(f"there is no virtual cluster {action.vc}")
    owned = least_owned(state, vc.id, lot.pool, lot.level, lot.begin_us, lot.end_us)
    require(owned >= lot.count, f"virtual cluster {vc.name} does not own that throughout")
    cluster = state.cluster
    posting = Posting(cluster.next_posting, PostingKind.OFFER, vc.id, lot, now, lot.end_us, by_proxy=True)
    _put_new(state, prepare_posting(posting))


def withdraw(state: State, action: Withdraw, _now: Micros) -> None:
    posting = state.postings.rows.get(action.posting)
    if posting is None:
        raise PlanRefused(f"posting {action.posting} is not on the board")
    require(posting.by_proxy, f"posting {posting.id} was not posted by a proxy")
    state.put(state.postings, posting.id, withdraw_posting(posting))
