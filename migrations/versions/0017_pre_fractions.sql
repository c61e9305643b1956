-- Runs may have a part of a device. What jobs ask for is in job.spec_more.
ALTER TABLE run ADD COLUMN part_ppm BIGINT;
ALTER TABLE run ADD CONSTRAINT run_part_of_a_device CHECK (part_ppm > 0 AND part_ppm <= 1000000);
COMMENT ON COLUMN run.part_ppm IS 'In a share group: the part of its device that it asked for, in millionths; null: all of it';
