"""Simulations as data, how many of them run, and what is told of their results."""
