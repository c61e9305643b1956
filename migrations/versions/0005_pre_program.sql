-- Null also in the rows that a scheduler of before this version still adds while another one is upgraded.
ALTER TABLE run ADD COLUMN program text;

COMMENT ON COLUMN run.program IS 'The file that was executed, on its node; null: not yet, or unknown';
