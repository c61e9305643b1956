ALTER TABLE run DROP COLUMN share_group, DROP COLUMN device_memory_mib, DROP COLUMN parked_mib;
ALTER TABLE cluster DROP COLUMN next_share_group;
DROP TABLE share_group;
