-- Nodes know for which jobs they have strikes, so that all jobs of one user are one strike.
ALTER TABLE node ADD COLUMN strike_causes JSONB;
ALTER TABLE node ADD CONSTRAINT node_strike_causes_is_array CHECK (jsonb_typeof(strike_causes) = 'array');
COMMENT ON COLUMN node.strike_causes IS 'The last strikes: array of [job, user or null, what it did]; null: none is known';
