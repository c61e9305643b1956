-- Runs say for which part of the time they may compute, and when their nodes are told again to stop them.
ALTER TABLE run ADD COLUMN turns JSONB;
ALTER TABLE run ADD CONSTRAINT run_turns_is_array CHECK (jsonb_typeof(turns) = 'array');
COMMENT ON COLUMN run.turns IS 'core.model.turns.Turns: the part of the time in which it may compute; null: it never took turns';
ALTER TABLE run ADD COLUMN overdue_us BIGINT;
COMMENT ON COLUMN run.overdue_us IS 'Of one that did not stop in time: when its node is told again; null: it is not so late; microseconds since 1970';
ALTER TABLE job_event DROP CONSTRAINT job_event_kind_known;
ALTER TABLE job_event ADD CONSTRAINT job_event_kind_known CHECK (kind IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 40, 41, 42, 43, 49, 55, 56, 57, 58, 59, 61, 62, 63));
COMMENT ON COLUMN job_event.kind IS 'What happened: 1 SUBMITTED, 2 PLACED, 3 STARTED, 4 PREEMPTING, 5 PREEMPTED, 6 VACATED, 7 REQUEUED, 8 CANCEL_REQUESTED, 9 NODE_SILENT, 10 NODE_RETURNED, 11 ENDED, 12 EARMARK_DROPPED, 13 HELD, 14 RELEASED, 15 SUSPEND_REQUESTED, 16 SUSPENDED, 17 RESUMED, 18 REQUEUE_REQUESTED, 19 UPDATED, 20 TIME_LIMIT, 21 TASK_ENDED, 22 GANG_READY, 23 DEVICE_FAULT, 24 RECLAIMED, 25 GUARANTEED, 26 OPPORTUNISTIC, 40 SAMPLED, 41 PARKED, 42 PARK_REFUSED, 43 UNPARKED, 49 PROBED, 55 MIGRATING, 56 MIGRATED, 57 MIGRATION_FAILED, 58 RESIZED, 59 RETIMED, 61 STOP_OVERDUE, 62 SAVE_FAILED, 63 GRACE_TOO_SHORT';
