-- Every row was an earmark.
CREATE TABLE operation (
    id BIGSERIAL NOT NULL,
    kind SMALLINT NOT NULL,
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
    CONSTRAINT operation_pkey PRIMARY KEY (id),
    CONSTRAINT operation_of_job FOREIGN KEY(job_id) REFERENCES job (id),
    CONSTRAINT operation_node_exists FOREIGN KEY(node) REFERENCES node (id),
    CONSTRAINT operation_kind_known CHECK (kind IN (1)),
    CONSTRAINT operation_phase_known CHECK (phase IN (1, 2)),
    CONSTRAINT operation_want_not_negative CHECK (want_cpu_milli >= 0 AND want_memory_mib >= 0 AND want_devices >= 0),
    CONSTRAINT operation_kept_not_negative CHECK (kept_cpu_milli >= 0 AND kept_memory_mib >= 0 AND kept_devices >= 0),
    CONSTRAINT operation_keeps_no_more_than_wanted CHECK (kept_cpu_milli <= want_cpu_milli AND kept_memory_mib <= want_memory_mib AND kept_devices <= want_devices),
    CONSTRAINT operation_victims_is_array CHECK (jsonb_typeof(victims) = 'array'),
    CONSTRAINT operation_devices_is_array CHECK (jsonb_typeof(devices) = 'array'),
    CONSTRAINT operation_id_positive CHECK (id > 0)
);

COMMENT ON TABLE operation IS 'What takes several phases and must survive a change of leader; deleted when done';
COMMENT ON COLUMN operation.kind IS 'What it is: 1 EARMARK';
COMMENT ON COLUMN operation.phase IS 'Where it stands; a new leader goes on from here: 1 VACATING, 2 READY';
COMMENT ON COLUMN operation.job_id IS 'For whom';
COMMENT ON COLUMN operation.want_cpu_milli IS 'What is to be kept in the end: thousandths of a CPU core';
COMMENT ON COLUMN operation.want_memory_mib IS 'What is to be kept in the end: MiB of host memory';
COMMENT ON COLUMN operation.want_devices IS 'What is to be kept in the end: whole devices';
COMMENT ON COLUMN operation.kept_cpu_milli IS 'What is kept now: neither free nor owned by a run: thousandths of a CPU core';
COMMENT ON COLUMN operation.kept_memory_mib IS 'What is kept now: neither free nor owned by a run: MiB of host memory';
COMMENT ON COLUMN operation.kept_devices IS 'What is kept now: neither free nor owned by a run: whole devices';
COMMENT ON COLUMN operation.victims IS 'The runs that promised what is missing: array of [job, run, task]';
COMMENT ON COLUMN operation.created_us IS 'When it began; microseconds since 1970';
COMMENT ON COLUMN operation.deadline_us IS 'When it lapses; null while it cannot; microseconds since 1970';
COMMENT ON COLUMN operation.tasks IS 'The ranks of the job''s tasks that are to run there';
COMMENT ON COLUMN operation.devices IS 'In cells: which devices are kept, an array for each of the tasks; empty: any';

INSERT INTO operation (kind, id, phase, job_id, node, want_cpu_milli, want_memory_mib, want_devices, kept_cpu_milli, kept_memory_mib,
    kept_devices, victims, created_us, deadline_us, tasks, devices)
    SELECT 1, id, phase, job_id, node, want_cpu_milli, want_memory_mib, want_devices, kept_cpu_milli, kept_memory_mib,
    kept_devices, victims, created_us, deadline_us, tasks, devices FROM earmark;
DROP TABLE earmark;
ALTER TABLE cluster ADD COLUMN next_operation BIGINT;
UPDATE cluster SET next_operation = next_earmark;
ALTER TABLE cluster ALTER COLUMN next_operation SET NOT NULL, DROP COLUMN next_earmark;
ALTER TABLE cluster ADD CONSTRAINT cluster_numbers_count_up
    CHECK (next_job > 0 AND next_node > 0 AND next_operation > 0 AND next_vc > 0);
