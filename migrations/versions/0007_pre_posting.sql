-- What is on the board of cell exchange is a posting; an order is what an agent is told.
CREATE TABLE exchange_posting (
    id BIGSERIAL NOT NULL,
    kind SMALLINT NOT NULL,
    vc BIGINT NOT NULL,
    pool TEXT NOT NULL,
    level TEXT NOT NULL,
    cells INTEGER NOT NULL,
    begin_us BIGINT NOT NULL,
    end_us BIGINT NOT NULL,
    devices INTEGER NOT NULL,
    posted_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    bid NUMERIC(38, 0),
    swap JSONB,
    state SMALLINT NOT NULL,
    by_proxy BOOLEAN NOT NULL,
    begins_us BIGINT,
    request_id TEXT NOT NULL,
    CONSTRAINT exchange_posting_pkey PRIMARY KEY (id),
    CONSTRAINT exchange_posting_kind_known CHECK (kind IN (1, 2)),
    CONSTRAINT exchange_posting_state_known CHECK (state IN (1, 2, 3, 4)),
    CONSTRAINT exchange_posting_lot_not_empty CHECK (cells > 0 AND begin_us < end_us AND devices >= 0),
    CONSTRAINT exchange_posting_id_positive CHECK (id > 0 AND vc > 0),
    CONSTRAINT exchange_posting_stands_for_a_time CHECK (posted_us <= expires_us AND expires_us <= end_us),
    CONSTRAINT exchange_posting_bid_not_negative CHECK (bid >= 0),
    CONSTRAINT exchange_posting_swap_has_no_price CHECK (bid IS NULL OR swap IS NULL),
    CONSTRAINT exchange_posting_swap_is_array CHECK (jsonb_typeof(swap) = 'array')
);

CREATE INDEX exchange_posting_open ON exchange_posting (id) WHERE state = 1;
CREATE UNIQUE INDEX exchange_posting_request_once ON exchange_posting (vc, request_id) WHERE request_id <> '';
COMMENT ON TABLE exchange_posting IS 'Offers and requests of cells; rows stay when they have left the board';
COMMENT ON COLUMN exchange_posting.kind IS 'What it is: 1 OFFER, 2 REQUEST';
COMMENT ON COLUMN exchange_posting.vc IS 'Whose it is; a virtual cluster that is gone leaves its rows';
COMMENT ON COLUMN exchange_posting.cells IS 'How many';
COMMENT ON COLUMN exchange_posting.begin_us IS 'When their window begins; microseconds since 1970';
COMMENT ON COLUMN exchange_posting.end_us IS 'When it is over; microseconds since 1970';
COMMENT ON COLUMN exchange_posting.devices IS 'Of one such cell, when the row was made';
COMMENT ON COLUMN exchange_posting.posted_us IS 'When it was posted; microseconds since 1970';
COMMENT ON COLUMN exchange_posting.expires_us IS 'When it leaves the board; microseconds since 1970';
COMMENT ON COLUMN exchange_posting.bid IS 'What a request pays at most, an offer wants at least; null: as many as the cells have; device-microseconds';
COMMENT ON COLUMN exchange_posting.swap IS 'Cells in return: [pool, level, cells, begin, end, devices of one]; null: surplus alone';
COMMENT ON COLUMN exchange_posting.state IS 'Whether it is on the board, and why not: 1 OPEN, 2 MATCHED, 3 WITHDRAWN, 4 EXPIRED';
COMMENT ON COLUMN exchange_posting.by_proxy IS 'Posted for the tenant by its proxy';
COMMENT ON COLUMN exchange_posting.begins_us IS 'When its window begins; null: it has begun, or that was not waited for; microseconds since 1970';
COMMENT ON COLUMN exchange_posting.request_id IS 'Given by the client so that a repeated post makes one posting; empty when it gave none';

INSERT INTO exchange_posting (id, kind, vc, pool, level, cells, begin_us, end_us, devices,
    posted_us, expires_us, bid, swap, state, by_proxy, begins_us, request_id)
    SELECT id, kind, vc, pool, level, cells, begin_us, end_us, devices,
    posted_us, expires_us, bid, swap, state, by_proxy, begins_us, request_id FROM exchange_order;
ALTER TABLE exchange DROP CONSTRAINT exchange_offer_exists, DROP CONSTRAINT exchange_request_exists;
DROP TABLE exchange_order;
ALTER TABLE exchange ADD CONSTRAINT exchange_offer_exists FOREIGN KEY(offer) REFERENCES exchange_posting (id),
    ADD CONSTRAINT exchange_request_exists FOREIGN KEY(request) REFERENCES exchange_posting (id);
COMMENT ON COLUMN exchange.offer IS 'The offer, if it met one';
COMMENT ON COLUMN exchange.request IS 'The request, if it met one';
COMMENT ON COLUMN exchange.request_id IS 'Of the tenant that accepted a posting of another; empty when it gave none, or the arbiter matched';

ALTER TABLE cluster ADD COLUMN next_posting BIGINT;
UPDATE cluster SET next_posting = next_order;
ALTER TABLE cluster ALTER COLUMN next_posting SET NOT NULL, DROP COLUMN next_order;
ALTER TABLE cluster ADD CONSTRAINT cluster_exchange_numbers_count_up CHECK (next_posting > 0 AND next_exchange > 0);
