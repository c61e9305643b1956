"""Gandiva's evaluation (OSDI 2018), reproduced."""
