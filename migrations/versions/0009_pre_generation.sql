-- Null also in the rows that a scheduler of before this version still adds while another one is upgraded.
ALTER TABLE run ADD COLUMN generation bigint;
UPDATE run SET generation = 2 WHERE stop_us IS NOT NULL AND ended_us IS NULL;

COMMENT ON COLUMN run.generation IS 'Grows with each change of what is desired of it on its node; null: 1, the first';
