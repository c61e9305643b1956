"""Brings about what is desired of runs: starts and stops them, and reports what becomes of them."""
