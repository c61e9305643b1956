-- Operations: changes of running jobs that take several phases. Runs may be parked.
CREATE TABLE operation (
    id BIGSERIAL NOT NULL,
    kind SMALLINT NOT NULL,
    phase SMALLINT NOT NULL,
    job_id BIGINT NOT NULL,
    source JSONB NOT NULL,
    begun_us BIGINT NOT NULL,
    phase_us BIGINT NOT NULL,
    target JSONB,
    deadline_us BIGINT,
    undo JSONB NOT NULL,
    more JSONB NOT NULL,
    CONSTRAINT operation_pkey PRIMARY KEY (id),
    CONSTRAINT operation_once UNIQUE (job_id) DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT operation_of_job FOREIGN KEY(job_id) REFERENCES job (id),
    CONSTRAINT operation_id_positive CHECK (id > 0),
    CONSTRAINT operation_source_is_array CHECK (jsonb_typeof(source) = 'array'),
    CONSTRAINT operation_target_is_array CHECK (jsonb_typeof(target) = 'array'),
    CONSTRAINT operation_undo_is_array CHECK (jsonb_typeof(undo) = 'array'),
    CONSTRAINT operation_more_is_object CHECK (jsonb_typeof(more) = 'object'),
    CONSTRAINT operation_kind_known CHECK (kind IN (1, 2, 3, 4)),
    CONSTRAINT operation_phase_known CHECK (phase IN (1, 2, 3, 4))
);

COMMENT ON TABLE operation IS 'Changes of running jobs that take several phases; deleted when they are over';
COMMENT ON COLUMN operation.kind IS 'What it does: 1 PARK, 2 MIGRATE, 3 PROBE, 4 RESIZE';
COMMENT ON COLUMN operation.phase IS 'Where it stands; a new leader goes on from here: 1 PARKING, 2 PARKED, 3 WAITING, 4 RESUMING';
COMMENT ON COLUMN operation.job_id IS 'The job that it changes';
COMMENT ON COLUMN operation.source IS 'The run that it changes: array of job, run, task';
COMMENT ON COLUMN operation.begun_us IS 'When it began; microseconds since 1970';
COMMENT ON COLUMN operation.phase_us IS 'When it came to its phase; microseconds since 1970';
COMMENT ON COLUMN operation.target IS 'The run that takes the place of the source: array of job, run, task; null: none';
COMMENT ON COLUMN operation.deadline_us IS 'When its phase is given up; null: it may take any time; microseconds since 1970';
COMMENT ON COLUMN operation.undo IS 'From what it is undone: an array, in words of its kind';
COMMENT ON COLUMN operation.more IS 'What else its kind remembers: an object';

ALTER TABLE cluster ADD COLUMN next_operation BIGINT;
ALTER TABLE cluster ADD CONSTRAINT cluster_operations_count_up CHECK (next_operation > 0);
COMMENT ON COLUMN cluster.next_operation IS 'Null: 1, the first';

ALTER TABLE run ADD COLUMN parking JSONB;
ALTER TABLE run ADD COLUMN phases JSONB;
ALTER TABLE run ADD CONSTRAINT run_parking_is_array CHECK (jsonb_typeof(parking) = 'array');
ALTER TABLE run ADD CONSTRAINT run_phases_is_array CHECK (jsonb_typeof(phases) = 'array');
COMMENT ON COLUMN run.parked_mib IS 'Host memory for what is on its devices while it is parked; null: none';
COMMENT ON COLUMN run.parking IS 'core.model.parking.Parking: whether it is parked, and on what it resumes; null: never parked';
COMMENT ON COLUMN run.phases IS 'Array of core.model.parking.PhaseTime: what phases of its operations took; null: none';

ALTER TABLE run DROP CONSTRAINT run_phase_known;
ALTER TABLE run ADD CONSTRAINT run_phase_known CHECK (phase IN (1, 2, 3, 4, 5, 6, 7, 8));
COMMENT ON COLUMN run.phase IS 'Where the launch stands: 1 STARTING, 2 RUNNING, 3 STOPPING, 4 ENDED, 5 READY, 6 PARKING, 7 PARKED, 8 RESUMING';
ALTER TABLE run DROP CONSTRAINT run_stop_reason_known;
ALTER TABLE run ADD CONSTRAINT run_stop_reason_known CHECK (stop_reason IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 40, 45));
COMMENT ON COLUMN run.stop_reason IS 'Why it was told to stop; null when it was not: 1 PREEMPTED, 2 CANCELLED, 3 UNCLAIMED, 4 SUSPENDED, 5 REQUEUED, 6 TIME_LIMIT, 7 GANG, 8 DRAINED, 9 RECLAIMED, 10 RESIZED, 40 SAMPLED, 45 PARKED';
ALTER TABLE job DROP CONSTRAINT job_reason_known;
ALTER TABLE job ADD CONSTRAINT job_reason_known CHECK (reason IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 40, 45));
COMMENT ON COLUMN job.reason IS 'Why it is in this state: 0 NONE, 1 BEHIND, 2 NO_ROOM, 3 TOO_LARGE, 4 WAITING_FOR_VICTIMS, 5 NOTHING_TO_PREEMPT, 6 PREEMPTED, 7 NODE_LOST, 8 NODE_SILENT, 9 CANCELLED, 10 EXITED, 11 SIGNALLED, 12 LAUNCH_FAILED, 13 EXIT_UNKNOWN, 14 YIELDED, 15 HELD, 16 SUSPENDED, 17 RESUMED, 18 REQUEUED, 19 TIME_LIMIT, 20 OUT_OF_MEMORY, 21 RETRYING, 22 FAILED_ON_SEVERAL_NODES, 23 DEPENDENCY, 24 DEPENDENCY_NEVER, 25 TASK_FAILED, 26 GANG_NOT_READY, 27 NODE_DRAINED, 28 ELEMENTS_FAILED, 29 ARRAY_LIMIT, 30 DEVICE_FAULT, 31 BEYOND_QUOTA, 32 CELLS_FAULTY, 33 RECLAIMED, 34 NEVER_IN_QUOTA, 35 RESIZED, 40 SAMPLED, 45 PARKED';
ALTER TABLE job_event DROP CONSTRAINT job_event_reason_known;
ALTER TABLE job_event ADD CONSTRAINT job_event_reason_known CHECK (reason IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 40, 45));
COMMENT ON COLUMN job_event.reason IS 'Why: 0 NONE, 1 BEHIND, 2 NO_ROOM, 3 TOO_LARGE, 4 WAITING_FOR_VICTIMS, 5 NOTHING_TO_PREEMPT, 6 PREEMPTED, 7 NODE_LOST, 8 NODE_SILENT, 9 CANCELLED, 10 EXITED, 11 SIGNALLED, 12 LAUNCH_FAILED, 13 EXIT_UNKNOWN, 14 YIELDED, 15 HELD, 16 SUSPENDED, 17 RESUMED, 18 REQUEUED, 19 TIME_LIMIT, 20 OUT_OF_MEMORY, 21 RETRYING, 22 FAILED_ON_SEVERAL_NODES, 23 DEPENDENCY, 24 DEPENDENCY_NEVER, 25 TASK_FAILED, 26 GANG_NOT_READY, 27 NODE_DRAINED, 28 ELEMENTS_FAILED, 29 ARRAY_LIMIT, 30 DEVICE_FAULT, 31 BEYOND_QUOTA, 32 CELLS_FAULTY, 33 RECLAIMED, 34 NEVER_IN_QUOTA, 35 RESIZED, 40 SAMPLED, 45 PARKED';
ALTER TABLE job_event DROP CONSTRAINT job_event_kind_known;
ALTER TABLE job_event ADD CONSTRAINT job_event_kind_known CHECK (kind IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 40, 41, 42, 43));
COMMENT ON COLUMN job_event.kind IS 'What happened: 1 SUBMITTED, 2 PLACED, 3 STARTED, 4 PREEMPTING, 5 PREEMPTED, 6 VACATED, 7 REQUEUED, 8 CANCEL_REQUESTED, 9 NODE_SILENT, 10 NODE_RETURNED, 11 ENDED, 12 EARMARK_DROPPED, 13 HELD, 14 RELEASED, 15 SUSPEND_REQUESTED, 16 SUSPENDED, 17 RESUMED, 18 REQUEUE_REQUESTED, 19 UPDATED, 20 TIME_LIMIT, 21 TASK_ENDED, 22 GANG_READY, 23 DEVICE_FAULT, 24 RECLAIMED, 25 GUARANTEED, 26 OPPORTUNISTIC, 40 SAMPLED, 41 PARKED, 42 PARK_REFUSED, 43 UNPARKED';
