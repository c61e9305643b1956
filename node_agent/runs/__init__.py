"""Brings about the desired states of runs: starts and stops them, and reports their events."""
