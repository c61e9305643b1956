"""Simulations as data, sweeps that run many of them, and reports of their results."""
