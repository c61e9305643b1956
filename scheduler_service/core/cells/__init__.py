"""Cells: the hierarchy of a pool, which of its cells are free, and which belong to whom (HiveD, section 3)."""
