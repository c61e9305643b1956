"""Snapshots on their way into runs, and results on their way out of them."""
