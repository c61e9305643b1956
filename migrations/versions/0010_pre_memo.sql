-- What policies remember between two steps.
CREATE TABLE memo (
    policy TEXT NOT NULL,
    subject TEXT NOT NULL,
    value JSONB NOT NULL,
    job_id BIGINT,
    due_us BIGINT,
    due BOOLEAN NOT NULL,
    CONSTRAINT memo_pkey PRIMARY KEY (policy, subject),
    CONSTRAINT memo_of_job FOREIGN KEY(job_id) REFERENCES job (id),
    CONSTRAINT memo_policy_given CHECK (policy <> ''),
    CONSTRAINT memo_value_is_array CHECK (jsonb_typeof(value) = 'array'),
    CONSTRAINT memo_due_once CHECK (NOT (due AND due_us IS NOT NULL))
);

COMMENT ON TABLE memo IS 'What policies remember between two steps';
COMMENT ON COLUMN memo.policy IS 'Whose it is, by the name of the policy';
COMMENT ON COLUMN memo.subject IS 'What it is about, in words of the policy''s own';
COMMENT ON COLUMN memo.value IS 'Array of numbers and strings, which only the policy reads';
COMMENT ON COLUMN memo.job_id IS 'It is deleted when this job ends; null: when the policy does so';
COMMENT ON COLUMN memo.due_us IS 'When the policy is asked, though nothing else happens; null: it need not be; microseconds since 1970';
COMMENT ON COLUMN memo.due IS 'That time was reached, and the policy has not written it again since';
