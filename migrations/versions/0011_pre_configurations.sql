-- Labels of nodes, and configurations of jobs: those themselves are in job.spec_more and job.more.
ALTER TABLE node ADD COLUMN labels JSONB;
ALTER TABLE node ADD CONSTRAINT node_labels_is_object CHECK (jsonb_typeof(labels) = 'object');
COMMENT ON COLUMN node.labels IS 'As its agent reports them: an object of strings; null: it has none';

ALTER TABLE earmark ADD COLUMN configuration INTEGER;
ALTER TABLE earmark ADD CONSTRAINT earmark_configuration_positive CHECK (configuration > 0);
COMMENT ON COLUMN earmark.configuration IS 'Of the job, in which it is to start; null: 0, the first';
