-- Rows of share groups may have no turn, while another row has one.
ALTER TABLE share_group DROP CONSTRAINT share_group_weights_positive;
ALTER TABLE share_group ADD CONSTRAINT share_group_weights_not_negative CHECK (NOT jsonb_path_exists(plan, '$[*][1] ? (@ < 0)'));
ALTER TABLE share_group ADD CONSTRAINT share_group_turns_given CHECK (jsonb_path_exists(plan, '$[*][1] ? (@ > 0)'));
COMMENT ON COLUMN share_group.plan IS 'Its rows: which runs execute at the same time: array of [array of [job, run, task], weight; 0: no turn]';
