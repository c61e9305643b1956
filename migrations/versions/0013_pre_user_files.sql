-- Snapshots and results: what travels with jobs besides their specs.
CREATE TABLE user_file (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    size BIGINT NOT NULL,
    stored BIGINT NOT NULL,
    complete BOOLEAN NOT NULL,
    used_us BIGINT NOT NULL,
    CONSTRAINT user_file_pkey PRIMARY KEY (owner, name),
    CONSTRAINT user_file_size_positive CHECK (size > 0),
    CONSTRAINT user_file_stored_within_size CHECK (stored BETWEEN 0 AND size),
    CONSTRAINT user_file_complete_when_stored CHECK (NOT complete OR stored = size)
);

COMMENT ON TABLE user_file IS 'Snapshots and results, which travel with jobs; written by the calls of users and agents, outside of the commits';
COMMENT ON COLUMN user_file.owner IS 'The user of the jobs that may use it';
COMMENT ON COLUMN user_file.name IS 'Of a snapshot, its SHA-256; of a result, result-JOB.RUN';
COMMENT ON COLUMN user_file.size IS 'Bytes of the whole';
COMMENT ON COLUMN user_file.stored IS 'Bytes that have arrived';
COMMENT ON COLUMN user_file.complete IS 'All bytes have arrived, and are what they should be';
COMMENT ON COLUMN user_file.used_us IS 'When it was last written, or named by a job that was submitted; microseconds since 1970';

CREATE TABLE user_file_piece (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    at BIGINT NOT NULL,
    data BYTEA NOT NULL,
    CONSTRAINT user_file_piece_pkey PRIMARY KEY (owner, name, at),
    CONSTRAINT user_file_piece_of_file FOREIGN KEY(owner, name) REFERENCES user_file (owner, name) ON DELETE CASCADE
);

COMMENT ON TABLE user_file_piece IS 'The content of user files, in pieces';
COMMENT ON COLUMN user_file_piece.at IS 'How many bytes are before it';
