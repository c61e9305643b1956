"""A PostgreSQL server of our own, for one machine and for tests."""
