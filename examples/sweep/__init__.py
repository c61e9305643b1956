"""A sweep on a cluster of this machine: `python -m examples.sweep`."""
