"""Measurements of devices and of runs: use, memory cycles, steps."""
