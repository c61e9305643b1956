"""Ebb's node agent: reports what a node has, runs what the scheduler orders, and reports what became of it."""
