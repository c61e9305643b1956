-- An older version counts strikes without their causes.
ALTER TABLE node DROP COLUMN strike_causes;
