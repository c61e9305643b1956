-- A node that will not come back: its row stays, for runs refer to it.
ALTER TABLE node DROP CONSTRAINT node_state_known, ADD CONSTRAINT node_state_known CHECK (state IN (1, 2, 3));

COMMENT ON COLUMN node.state IS 'Whether its agent is heard: 1 UP, 2 SILENT, 3 DELETED';
