"""Reads: the live rows for a new leader, and look-ups for the API."""
