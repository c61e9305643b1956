-- Who may call the API.
CREATE TABLE api_token (
    id BIGSERIAL NOT NULL,
    hash BYTEA NOT NULL,
    last_chars TEXT NOT NULL,
    subject TEXT NOT NULL,
    role SMALLINT NOT NULL,
    created_us BIGINT NOT NULL,
    expires_us BIGINT,
    revoked_us BIGINT,
    CONSTRAINT api_token_pkey PRIMARY KEY (id),
    CONSTRAINT api_token_hash_once UNIQUE (hash),
    CONSTRAINT api_token_role_known CHECK (role IN (1, 2, 3)),
    CONSTRAINT api_token_id_positive CHECK (id > 0),
    CONSTRAINT api_token_hash_is_sha256 CHECK (octet_length(hash) = 32),
    CONSTRAINT api_token_tells_little_of_the_secret CHECK (length(last_chars) <= 6),
    CONSTRAINT api_token_subject_given CHECK (subject <> ''),
    CONSTRAINT api_token_expires_after_it_was_made CHECK (expires_us > created_us)
);

COMMENT ON TABLE api_token IS 'Who may call the API; written by `ebb-scheduler token`, outside of the commits of the leader';
COMMENT ON COLUMN api_token.hash IS 'SHA-256 of the secret, which only its owner has';
COMMENT ON COLUMN api_token.last_chars IS 'The end of the secret, by which its owner recognises it';
COMMENT ON COLUMN api_token.subject IS 'Whose it is: the user of the jobs that are submitted with it';
COMMENT ON COLUMN api_token.role IS 'What it is for: 1 USER, 2 OPERATOR, 3 AGENT';
COMMENT ON COLUMN api_token.created_us IS 'When it was made; microseconds since 1970';
COMMENT ON COLUMN api_token.expires_us IS 'From when on it is refused; null where it does not expire; microseconds since 1970';
COMMENT ON COLUMN api_token.revoked_us IS 'When it was taken back; null while it holds; microseconds since 1970';
