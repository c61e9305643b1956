-- Earmarks are rows of their own, and no kind of operation.
CREATE TABLE earmark (
    id BIGSERIAL NOT NULL,
    phase SMALLINT NOT NULL,
    job_id BIGINT NOT NULL,
    node BIGINT NOT NULL,
    want_cpu_milli BIGINT NOT NULL,
    want_memory_mib BIGINT NOT NULL,
    want_devices INTEGER NOT NULL,
    kept_cpu_milli BIGINT NOT NULL,
    kept_memory_mib BIGINT NOT NULL,
    kept_devices INTEGER NOT NULL,
    victims JSONB NOT NULL,
    created_us BIGINT NOT NULL,
    deadline_us BIGINT,
    tasks INTEGER[] NOT NULL,
    devices JSONB NOT NULL,
    CONSTRAINT earmark_pkey PRIMARY KEY (id),
    CONSTRAINT earmark_of_job FOREIGN KEY(job_id) REFERENCES job (id),
    CONSTRAINT earmark_node_exists FOREIGN KEY(node) REFERENCES node (id),
    CONSTRAINT earmark_phase_known CHECK (phase IN (1, 2)),
    CONSTRAINT earmark_want_not_negative CHECK (want_cpu_milli >= 0 AND want_memory_mib >= 0 AND want_devices >= 0),
    CONSTRAINT earmark_kept_not_negative CHECK (kept_cpu_milli >= 0 AND kept_memory_mib >= 0 AND kept_devices >= 0),
    CONSTRAINT earmark_keeps_no_more_than_wanted CHECK (kept_cpu_milli <= want_cpu_milli AND kept_memory_mib <= want_memory_mib AND kept_devices <= want_devices),
    CONSTRAINT earmark_victims_is_array CHECK (jsonb_typeof(victims) = 'array'),
    CONSTRAINT earmark_devices_is_array CHECK (jsonb_typeof(devices) = 'array'),
    CONSTRAINT earmark_id_positive CHECK (id > 0)
);

COMMENT ON TABLE earmark IS 'What is kept on a node for a job that has not started; deleted once it has';
COMMENT ON COLUMN earmark.phase IS 'Where it stands; a new leader goes on from here: 1 VACATING, 2 READY';
COMMENT ON COLUMN earmark.job_id IS 'For whom';
COMMENT ON COLUMN earmark.want_cpu_milli IS 'What is to be kept in the end: thousandths of a CPU core';
COMMENT ON COLUMN earmark.want_memory_mib IS 'What is to be kept in the end: MiB of host memory';
COMMENT ON COLUMN earmark.want_devices IS 'What is to be kept in the end: whole devices';
COMMENT ON COLUMN earmark.kept_cpu_milli IS 'What is kept now: neither free nor owned by a run: thousandths of a CPU core';
COMMENT ON COLUMN earmark.kept_memory_mib IS 'What is kept now: neither free nor owned by a run: MiB of host memory';
COMMENT ON COLUMN earmark.kept_devices IS 'What is kept now: neither free nor owned by a run: whole devices';
COMMENT ON COLUMN earmark.victims IS 'The runs that promised what is missing: array of [job, run, task]';
COMMENT ON COLUMN earmark.created_us IS 'When it began; microseconds since 1970';
COMMENT ON COLUMN earmark.deadline_us IS 'When it lapses; null while it cannot; microseconds since 1970';
COMMENT ON COLUMN earmark.tasks IS 'The ranks of the job''s tasks that are to run there';
COMMENT ON COLUMN earmark.devices IS 'In cells: which devices are kept, an array for each of the tasks; empty: any';

INSERT INTO earmark (id, phase, job_id, node, want_cpu_milli, want_memory_mib, want_devices, kept_cpu_milli, kept_memory_mib,
    kept_devices, victims, created_us, deadline_us, tasks, devices)
    SELECT id, phase, job_id, node, want_cpu_milli, want_memory_mib, want_devices, kept_cpu_milli, kept_memory_mib,
    kept_devices, victims, created_us, deadline_us, tasks, devices FROM operation;
DROP TABLE operation;
ALTER TABLE cluster ADD COLUMN next_earmark BIGINT;
UPDATE cluster SET next_earmark = next_operation;
ALTER TABLE cluster ALTER COLUMN next_earmark SET NOT NULL, DROP COLUMN next_operation;
ALTER TABLE cluster ADD CONSTRAINT cluster_numbers_count_up
    CHECK (next_job > 0 AND next_node > 0 AND next_earmark > 0 AND next_vc > 0);
