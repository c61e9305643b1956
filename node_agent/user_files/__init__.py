"""Fetches snapshots for runs, and sends the results of runs."""
