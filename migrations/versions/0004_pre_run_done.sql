-- Whether the exit of a run with 0 means that its work is done: after a stop signal it usually does not.
ALTER TABLE run ADD COLUMN done BOOLEAN NOT NULL DEFAULT false;
UPDATE run SET done = true WHERE phase = 4 AND exit_code = 0 AND exit_signal = 0 AND NOT yielded AND NOT lost;
ALTER TABLE run ALTER COLUMN done DROP DEFAULT;

COMMENT ON COLUMN run.done IS 'It exited with 0, and that means that its work is done';
