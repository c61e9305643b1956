"""The tables of cell exchange; see `tables`."""

from sqlalchemy import ForeignKeyConstraint, Index, PrimaryKeyConstraint, text

from scheduler_service.core.model.tenants.exchange import Booking, ExchangeState, PostingKind, PostingState
from scheduler_service.store.schema.columns import (
    LOT_NOT_EMPTY,
    amount,
    big,
    enum,
    flag,
    json,
    lot,
    micros,
    rule,
    string,
    table,
)

exchange_posting = table(
    "exchange_posting",
    big("id"),
    enum("kind", PostingKind, "What it is"),
    big("vc", "Whose it is; a virtual cluster that is gone leaves its rows"),
    *lot(),
    micros("posted_us", "When it was posted"),
    micros("expires_us", "When it leaves the board"),
    amount("bid", "What a request pays at most, an offer wants at least; null: as many as the cells have", null=True),
    json("swap", "Cells in return: [pool, level, cells, begin, end, devices of one]; null: surplus alone", null=True),
    enum("state", PostingState, "Whether it is on the board, and why not"),
    flag("by_proxy", "Posted for the tenant by its proxy"),
    micros("begins_us", "When its window begins; null: it has begun, or that was not waited for", null=True),
    string("request_id", "Given by the client so that a repeated post makes one posting; empty when it gave none"),
    PrimaryKeyConstraint("id", name="exchange_posting_pkey"),
    rule("exchange_posting_lot_not_empty", LOT_NOT_EMPTY),
    rule("exchange_posting_id_positive", "id > 0 AND vc > 0"),
    rule("exchange_posting_stands_for_a_time", "posted_us <= expires_us AND expires_us <= end_us"),
    rule("exchange_posting_bid_not_negative", "bid >= 0"),
    rule("exchange_posting_swap_has_no_price", "bid IS NULL OR swap IS NULL"),
    rule("exchange_posting_swap_is_array", "jsonb_typeof(swap) = 'array'"),
    comment="Offers and requests of cells; rows stay when they have left the board",
)
Index(
    "exchange_posting_request_once",
    exchange_posting.c.vc,
    exchange_posting.c.request_id,
    unique=True,
    postgresql_where=text("request_id <> ''"),
)
Index("exchange_posting_open", exchange_posting.c.id, postgresql_where=text(f"state = {int(PostingState.OPEN)}"))

exchange = table(
    "exchange",
    big("id"),
    big("offer", "The offer, if it met one", null=True),
    big("request", "The request, if it met one", null=True),
    big("giver", "The virtual cluster whose cells they are"),
    big("taker", "The virtual cluster that has them for the window"),
    *lot(),
    amount("price", "Of surplus"),
    micros("agreed_us", "When it was agreed"),
    big("in_return_for", "The exchange whose taker gives these cells for it", null=True),
    enum("state", ExchangeState, "Where its window stands"),
    big("return_asked_by", "The side that would end it early, or 0"),
    micros("opened_us", "When its window was opened; null while it was not", null=True),
    micros("returned_us", "When it was over; null while it is not", null=True),
    string("request_id", "Of the tenant that accepted a posting of another; empty when it gave none, or the arbiter matched"),
    big("accepted_by", "The side whose request_id that is"),
    PrimaryKeyConstraint("id", name="exchange_pkey"),
    ForeignKeyConstraint(["offer"], ["exchange_posting.id"], name="exchange_offer_exists"),
    ForeignKeyConstraint(["request"], ["exchange_posting.id"], name="exchange_request_exists"),
    ForeignKeyConstraint(["in_return_for"], ["exchange.id"], name="exchange_in_return_exists"),
    rule("exchange_lot_not_empty", LOT_NOT_EMPTY),
    rule("exchange_id_positive", "id > 0 AND giver > 0 AND taker > 0"),
    rule("exchange_between_two", "giver <> taker"),
    rule("exchange_sides_act", "return_asked_by IN (0, giver, taker) AND accepted_by IN (giver, taker)"),
    rule("exchange_meets_something", "num_nonnulls(offer, request, in_return_for) > 0"),
    rule("exchange_price_not_negative", "price >= 0"),
    rule("exchange_active_was_opened", f"state <> {int(ExchangeState.ACTIVE)} OR opened_us IS NOT NULL"),
    rule("exchange_returned_has_time", f"(state = {int(ExchangeState.RETURNED)}) = (returned_us IS NOT NULL)"),
    comment="Cells of one virtual cluster that another has for a window, or had; a swap is two of them",
)
Index(
    "exchange_request_once",
    exchange.c.accepted_by,
    exchange.c.request_id,
    unique=True,
    postgresql_where=text("request_id <> ''"),
)
Index("exchange_live", exchange.c.id, postgresql_where=text("returned_us IS NULL"))
Index("exchange_of_offer", exchange.c.offer, postgresql_where=text("returned_us IS NULL"))

exchange_ledger = table(
    "exchange_ledger",
    big("vc", "Whose surplus it is"),
    big("exchange", "What it was booked for"),
    enum("what", Booking, "What was booked"),
    amount("device_us", "Positive: the virtual cluster is credited"),
    micros("at_us", "When it was booked"),
    PrimaryKeyConstraint("vc", "exchange", "what", name="exchange_ledger_pkey"),
    ForeignKeyConstraint(["exchange"], ["exchange.id"], name="exchange_ledger_exchange_exists"),
    rule("exchange_ledger_books_something", "device_us <> 0"),
    comment="What giving and taking cells was booked with: as much to one side's credit as to the other's debit; only added to",
)
Index("exchange_ledger_of_exchange", exchange_ledger.c.exchange)

exchange_surplus = table(
    "exchange_surplus",
    big("vc"),
    amount("device_us", "The sum of what the ledger has for it; negative: it has taken more than it gave"),
    PrimaryKeyConstraint("vc", name="exchange_surplus_pkey"),
    comment="What each virtual cluster has given less what it has taken; stays when it is gone, as others are owed the same",
)

idle_cells = table(
    "idle_cells",
    big("vc"),
    string("pool"),
    string("level"),
    json("history", "Array of [since when in microseconds since 1970, how many at least], both rising"),
    micros("due_us", "When more of them will have been idle for long enough to be offered", null=True),
    PrimaryKeyConstraint("vc", "pool", "level", name="idle_cells_pkey"),
    ForeignKeyConstraint(["vc"], ["virtual_cluster.id"], name="idle_cells_vc_exists"),
    rule("idle_cells_history_is_array", "jsonb_typeof(history) = 'array'"),
    comment="How many cells of a kind a virtual cluster has had idle, for its proxy; only while that is on",
)
