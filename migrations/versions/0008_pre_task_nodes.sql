-- The node of each task of a gang is in `task_nodes`, not in `seats`.
UPDATE job SET more = more - 'seats' || jsonb_build_object('task_nodes', more -> 'seats') WHERE more ? 'seats';
COMMENT ON COLUMN job.spec_more IS 'What the user asked for beyond the usual, by name (see core.model.JobSpec); null: nothing';
COMMENT ON COLUMN job.more IS 'What is not as it usually is, by name (see core.model.Job); null: nothing';
