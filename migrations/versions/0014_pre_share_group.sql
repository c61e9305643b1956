-- Devices that several runs hold together.
CREATE TABLE share_group (
    id BIGSERIAL NOT NULL,
    devices JSONB NOT NULL,
    plan JSONB NOT NULL,
    period_us BIGINT NOT NULL,
    vc TEXT NOT NULL,
    guaranteed BOOLEAN NOT NULL,
    generation BIGINT NOT NULL,
    open BOOLEAN NOT NULL,
    CONSTRAINT share_group_pkey PRIMARY KEY (id),
    CONSTRAINT share_group_numbers_positive CHECK (id > 0 AND period_us > 0 AND generation > 0),
    CONSTRAINT share_group_devices_given CHECK (jsonb_typeof(devices) = 'array' AND jsonb_array_length(devices) > 0),
    CONSTRAINT share_group_rows_given CHECK (jsonb_typeof(plan) = 'array' AND jsonb_array_length(plan) > 0),
    CONSTRAINT share_group_weights_positive CHECK (NOT jsonb_path_exists(plan, '$[*][1] ? (@ < 1)'))
);

COMMENT ON TABLE share_group IS 'Devices that several runs hold together; a run that holds its devices alone is in no group';
COMMENT ON COLUMN share_group.devices IS 'What the group holds: array of [node, array of device indices]';
COMMENT ON COLUMN share_group.plan IS 'Its rows: which runs execute at the same time: array of [array of [job, run, task], weight]';
COMMENT ON COLUMN share_group.period_us IS 'Microseconds that a cycle through all rows takes';
COMMENT ON COLUMN share_group.vc IS 'The virtual cluster of all members; empty where the site has none';
COMMENT ON COLUMN share_group.guaranteed IS 'All members are guaranteed; false: none is';
COMMENT ON COLUMN share_group.generation IS 'Grows with each change of what agents are told of the group';
COMMENT ON COLUMN share_group.open IS 'It stays a group when nothing is shared, so that others may join';

ALTER TABLE cluster ADD COLUMN next_share_group BIGINT;
ALTER TABLE cluster ADD CONSTRAINT cluster_share_groups_count_up CHECK (next_share_group > 0);
COMMENT ON COLUMN cluster.next_share_group IS 'Null: 1, the first';

ALTER TABLE run ADD COLUMN share_group BIGINT;
ALTER TABLE run ADD COLUMN device_memory_mib BIGINT;
ALTER TABLE run ADD COLUMN parked_mib BIGINT;
ALTER TABLE run ADD CONSTRAINT run_sharing_not_negative CHECK (share_group >= 0 AND device_memory_mib >= 0 AND parked_mib >= 0);
COMMENT ON COLUMN run.share_group IS 'The share group that holds its devices; 0: none any more; null: it never was in one';
COMMENT ON COLUMN run.device_memory_mib IS 'In a share group: the most memory that it may use of each device; null: no limit';
COMMENT ON COLUMN run.parked_mib IS 'In a share group: host memory for what is on its devices while it is parked; null: none';
