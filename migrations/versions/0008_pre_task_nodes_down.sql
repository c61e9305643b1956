-- As in 0001.
UPDATE job SET more = more - 'task_nodes' || jsonb_build_object('seats', more -> 'task_nodes') WHERE more ? 'task_nodes';
COMMENT ON COLUMN job.spec_more IS 'What the user asked for beyond the usual, by name (see core.job.JobSpec); null: nothing';
COMMENT ON COLUMN job.more IS 'What is not as it usually is, by name (see core.job.Job); null: nothing';
