"""Benchmarks of Ebb that need a GPU."""
