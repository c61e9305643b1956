-- An older version takes turns between all rows.
UPDATE share_group SET plan = (
    SELECT jsonb_agg(CASE WHEN part -> 1 = '0' THEN jsonb_set(part, '{1}', '1') ELSE part END ORDER BY place)
    FROM jsonb_array_elements(plan) WITH ORDINALITY AS parts(part, place)
) WHERE jsonb_path_exists(plan, '$[*][1] ? (@ < 1)');
ALTER TABLE share_group DROP CONSTRAINT share_group_weights_not_negative;
ALTER TABLE share_group DROP CONSTRAINT share_group_turns_given;
ALTER TABLE share_group ADD CONSTRAINT share_group_weights_positive CHECK (NOT jsonb_path_exists(plan, '$[*][1] ? (@ < 1)'));
COMMENT ON COLUMN share_group.plan IS 'Its rows: which runs execute at the same time: array of [array of [job, run, task], weight]';
