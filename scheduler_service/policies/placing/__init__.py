"""Placement: the nodes and devices on which a job starts."""
